// llama-reference: libllama as a measuring backend. It reads requests of `emel-backend/v1`
// (EMEL's src/bench/protocol.rs, docs/backends.md) from standard input and answers each with
// one line on standard output.
#include "engine.h"
#include "force.h"
#include "kernels.h"
#include "run.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <new>

// Everything that a request can need, by its `op`.
static Json answer(Engine & engine, Kernels & kernels, const Fields & request) {
    const std::string op = request.text("op");
    if (op == "load") {
        return load(engine, request);
    }
    if (op == "run") {
        return run(engine, request);
    }
    if (op == "force") {
        return force(engine, request);
    }
    if (op == "prepare_kernel") {
        return kernels.prepare(request);
    }
    if (op == "run_kernel") {
        return kernels.run(request);
    }
    if (op == "barrier") {
        return time_barrier(request);
    }
    throw Failure("op '" + op + "' is not known");
}

static Json answer_line(Engine & engine, Kernels & kernels, const Requests::Line & line) {
    try {
        if (!line.whole) {
            throw Failure("the request is too long");
        }
        forget_log();
        const Json request = Json::parse(line.text);
        return answer(engine, kernels, Fields(request));
    } catch (const nlohmann::json::exception & error) {
        return {{"error", std::string("the request is not JSON: ") + error.what()}};
    } catch (const std::bad_alloc &) {
        return {{"error", with_log("out of memory")}};
    } catch (const std::exception & error) {
        return {{"error", error.what()}};
    }
}

// Answers go where standard output went; whatever a library prints there goes to standard error.
static FILE * take_output() {
    int answers = dup(STDOUT_FILENO);
    if (answers < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        std::perror("llama-reference");
        std::exit(1);
    }
    return fdopen(answers, "w");
}

int main(int count, char ** arguments) {
    (void) arguments;
    if (count > 1) {
        std::fputs("llama-reference: takes no arguments: requests of emel-backend/v1, one JSON "
                   "object a line, come on standard input\n",
                   stderr);
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL); // beside the watch on standard input
    FILE * output = take_output();
    catch_log();
    llama_backend_init();

    Engine engine;
    Kernels kernels;
    Requests requests;
    requests.start();
    while (auto line = requests.next()) {
        const Json said = answer_line(engine, kernels, *line);
        const std::string text = said.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
        if (std::fwrite(text.data(), 1, text.size(), output) != text.size() ||
            std::fflush(output) != 0) {
            std::perror("llama-reference: cannot answer");
            return 1;
        }
    }
    return 0;
}
