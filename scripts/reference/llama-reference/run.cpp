#include "run.h"

#include "decode.h"
#include "trace.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <optional>

using Clock = std::chrono::steady_clock;

static int64_t nanoseconds_since(Clock::time_point begun) {
    return std::chrono::nanoseconds(Clock::now() - begun).count();
}

static std::vector<llama_token> tokenize(const Engine & engine, const std::string & text) {
    if (text.size() > INT_MAX / 2) {
        throw Failure("the text is too long to tokenize");
    }
    std::vector<llama_token> ids(text.size() + 8);
    int count = compat::tokenize(engine.model.get(), text.data(), (int) text.size(), ids.data(),
                                 (int) ids.size());
    if (count < 0 && count != INT_MIN) {
        ids.resize((size_t) -count);
        count = compat::tokenize(engine.model.get(), text.data(), (int) text.size(), ids.data(),
                                 (int) ids.size());
    }
    if (count < 0) {
        throw Failure(with_log("the text cannot be tokenized"));
    }
    ids.resize((size_t) count);
    return ids;
}

static std::string detokenize(const Engine & engine, const std::vector<llama_token> & ids) {
    std::string text;
    std::vector<char> piece(256);
    for (llama_token id : ids) {
        int length =
            compat::piece(engine.model.get(), id, piece.data(), (int) piece.size());
        if (length < 0) {
            piece.resize((size_t) -length);
            length = compat::piece(engine.model.get(), id, piece.data(), (int) piece.size());
        }
        if (length < 0) {
            throw Failure("token " + std::to_string(id) + " has no text");
        }
        text.append(piece.data(), (size_t) length);
    }
    return text;
}

// What an observed run keeps: checksums, and a trace if one was asked for.
class Observer {
  public:
    Observer(const Engine & engine, const Fields & request,
             const std::vector<llama_token> & prompt)
        : n_vocab((size_t) compat::n_vocab(engine.model.get())),
          wanted(request.optional_count("top_logprobs", 0, 1000).value_or(0)) {
        if (auto path = request.optional_text("trace")) {
            trace.emplace(*path, header(engine, request), prompt);
        }
    }

    void chosen(const float * logits, llama_token id) {
        ids.add_id(id);
        all_logits.add_logits(logits, n_vocab);
        if (trace) {
            trace->token(id, logits[id], runners_up(logits, n_vocab, id, wanted));
        }
    }

    void finish(const std::string & text, const std::string & stop, Json & answer) {
        if (trace) {
            trace->finish(stop);
        }
        Fnv64 sum;
        sum.add(text.data(), text.size());
        answer["text_checksum"] = sum.hex();
        answer["ids_checksum"] = ids.hex();
        answer["logits_checksum"] = all_logits.hex();
    }

  private:
    static TraceWriter::Pairs header(const Engine & engine, const Fields & request) {
        std::map<std::string, std::string> said = request.texts("header");
        auto take = [&](const char * key) {
            auto found = said.find(key);
            std::string value = found == said.end() ? "-" : found->second;
            said.erase(key);
            return value;
        };
        TraceWriter::Pairs pairs = {
            {"engine", REFERENCE_ENGINE},
            {"engine_version", REFERENCE_VERSION},
            {"model_sha256", take("model_sha256")},
            {"workload_id", take("workload_id")},
            {"lane", take("lane")},
            {"threads", std::to_string(engine.threads)},
            {"isa", isa()},
            {"route", "-"},
            {"numerics", "-"},
            {"engine_commit", REFERENCE_COMMIT},
            {"engine_compiler", REFERENCE_COMPILER},
            {"threads_batch", std::to_string(engine.threads_batch)},
            {"n_ctx", std::to_string(engine.n_ctx)},
            {"n_ubatch", std::to_string(engine.n_ubatch)},
        };
        const Json applied = options(engine.settings);
        for (const auto & [key, value] : applied.items()) {
            pairs.emplace_back("options_" + key,
                               value.is_string() ? value.get<std::string>() : value.dump());
        }
        for (const auto & pair : pairs) {
            said.erase(pair.first); // what the engine says of itself stands
        }
        for (const auto & [key, value] : said) {
            if (key.empty() || key.find_first_of("=\n\r") != std::string::npos ||
                key.compare(0, 6, "prompt") == 0) {
                throw Failure("'" + key + "' cannot be a trace's header key");
            }
            pairs.emplace_back(key, value);
        }
        return pairs;
    }

    size_t n_vocab;
    size_t wanted;
    Fnv64 ids;
    Fnv64 all_logits;
    std::optional<TraceWriter> trace;
};

static bool stops_at_end(const Fields & request) {
    const std::string rule = request.text("stop");
    if (rule != "eog" && rule != "limit") {
        throw Failure("key 'stop' must be 'eog' or 'limit', not '" + rule + "'");
    }
    return rule == "eog";
}

// The most memory this process has held. Not getrusage's: that one remembers, across exec, what the
// process that started this one held.
static uint64_t peak_rss_bytes() {
    std::ifstream status("/proc/self/status");
    std::string line;
    while (std::getline(status, line)) {
        if (line.rfind("VmHWM:", 0) == 0) {
            return std::strtoull(line.c_str() + 6, nullptr, 10) * 1024;
        }
    }
    return 0;
}

Json run(Engine & engine, const Fields & request) {
    need_model(engine);
    const std::string text = request.text("text");
    const auto prompt_tokens = request.optional_count("prompt_tokens", 1, INT_MAX);
    const size_t limit = request.count("max_tokens", 0, INT_MAX);
    const bool stop_at_end = stops_at_end(request);
    const bool observe = request.flag("observe", false);
    const llama_vocab * vocab = llama_model_get_vocab(engine.model.get());
    const size_t n_vocab = (size_t) compat::n_vocab(engine.model.get());

    forget(engine);
    auto begun = Clock::now();
    std::vector<llama_token> prompt = tokenize(engine, text);
    const int64_t tokenize_ns = nanoseconds_since(begun);
    prompt.resize(std::min<size_t>(prompt.size(), prompt_tokens.value_or(prompt.size())));
    if (prompt.empty()) {
        throw Failure("the prompt is empty");
    }
    need_room(engine, prompt.size());
    std::optional<Observer> observer;
    if (observe) {
        observer.emplace(engine, request, prompt);
    }

    begun = Clock::now();
    const float * logits = step(engine, prompt.data(), prompt.size(), 0);
    const int64_t prefill_ns = nanoseconds_since(begun);

    std::vector<llama_token> ids;
    std::vector<int64_t> step_ns;
    int64_t first_token_ns = 0;
    std::string stop = "limit";
    while (ids.size() < limit) {
        // The last token's position must be free to choose another after it.
        const size_t at = prompt.size() + ids.size();
        if (!ids.empty() && at > engine.n_ctx) {
            stop = "context_full";
            break;
        }
        begun = Clock::now();
        if (!ids.empty()) {
            logits = step(engine, &ids.back(), 1, at - 1);
        }
        llama_token id = argmax(logits, n_vocab);
        const int64_t taken = nanoseconds_since(begun);
        if (ids.empty()) {
            first_token_ns = taken;
        } else {
            step_ns.push_back(taken);
        }
        ids.push_back(id);
        if (observer) {
            observer->chosen(logits, id);
        }
        if (stop_at_end && llama_vocab_is_eog(vocab, id)) {
            stop = "eog";
            break;
        }
    }

    begun = Clock::now();
    const std::string output = detokenize(engine, ids);
    const int64_t detokenize_ns = nanoseconds_since(begun);

    Json answer = {
        {"prompt_ids", prompt},
        {"ids", ids},
        {"stop", stop},
        {"output_bytes", output.size()},
        {"tokenize_ns", tokenize_ns},
        {"prefill_ns", prefill_ns},
        {"first_token_ns", first_token_ns},
        {"step_ns", step_ns},
        {"detokenize_ns", detokenize_ns},
        {"text_checksum", nullptr},
        {"ids_checksum", nullptr},
        {"logits_checksum", nullptr},
    };
    if (observer) {
        observer->finish(output, stop, answer);
    }
    answer["peak_rss_bytes"] = peak_rss_bytes();
    answer["counters"] = Json::object();
    return answer;
}
