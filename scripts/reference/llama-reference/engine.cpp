#include "engine.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

static std::string last_error; // of the engine's messages, since forget_log

static void keep(ggml_log_level level, const char * text, void *) {
    static ggml_log_level current = GGML_LOG_LEVEL_INFO;
    if (level != GGML_LOG_LEVEL_CONT) {
        current = level;
    }
    if (current == GGML_LOG_LEVEL_ERROR) {
        last_error = text;
    }
    // Some thousand lines about tensors are of use to nobody here.
    if (current == GGML_LOG_LEVEL_ERROR || current == GGML_LOG_LEVEL_WARN) {
        std::fputs(text, stderr);
    }
}

void catch_log() {
    llama_log_set(keep, nullptr);
}

void forget_log() {
    last_error.clear();
}

std::string with_log(const std::string & reason) {
    std::string line = last_error;
    while (!line.empty() && (line.back() == '\n' || line.back() == ' ')) {
        line.pop_back();
    }
    return line.empty() ? reason : reason + ": " + line;
}

static ggml_type cache_type(const std::string & name) {
    for (ggml_type type : {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0,
                           GGML_TYPE_Q5_1, GGML_TYPE_Q5_0, GGML_TYPE_Q4_1, GGML_TYPE_Q4_0}) {
        if (name == ggml_type_name(type)) {
            return type;
        }
    }
    throw Failure("no cache type is called '" + name + "'");
}

compat::Settings settings(const Json & options) {
    compat::Settings result;
    const Fields fields(options);
    for (const auto & [key, value] : options.items()) {
        if (key == "flash_attention") {
            result.flash_attention = fields.flag("flash_attention", std::nullopt);
        } else if (key == compat::REPACK) {
            result.repack = fields.flag(compat::REPACK, std::nullopt);
        } else if (key == "mmap") {
            result.mmap = fields.flag("mmap", std::nullopt);
        } else if (key == "cache_type_k") {
            result.cache_type_k = cache_type(fields.text("cache_type_k"));
        } else if (key == "cache_type_v") {
            result.cache_type_v = cache_type(fields.text("cache_type_v"));
        } else {
            throw Failure("option '" + key + "' is not known; known are flash_attention, " +
                          compat::REPACK + ", mmap, cache_type_k and cache_type_v");
        }
    }
    return result;
}

Json options(const compat::Settings & settings) {
    return {
        {"flash_attention", settings.flash_attention},
        {compat::REPACK, settings.repack},
        {"mmap", settings.mmap},
        {"cache_type_k", ggml_type_name(settings.cache_type_k)},
        {"cache_type_v", ggml_type_name(settings.cache_type_v)},
        {"build", REFERENCE_BUILD},
    };
}

std::string isa() {
    // "CPU : SSE3 = 1 | AVX2 = 1 | AMX_INT8 = 1 | REPACK = 1 | "
    static const char * const NOT_TOLD[] = {"SSE3", "SSSE3", "AVX",  "F16C",      "FMA",
                                            "BMI2", "BLAS",  "OPENMP", "LLAMAFILE", "REPACK",
                                            "ARM_FMA"};
    std::istringstream info(llama_print_system_info());
    std::string word, name, result;
    while (info >> word) {
        if (word == "=") {
            info >> word;
            bool told = std::find(std::begin(NOT_TOLD), std::end(NOT_TOLD), name) ==
                        std::end(NOT_TOLD);
            if (word != "0" && told) {
                result += (result.empty() ? "" : "+") + name;
            }
        } else {
            name = word;
        }
    }
    for (char & letter : result) {
        letter = (char) std::tolower((unsigned char) letter);
    }
    return result.empty() ? "baseline" : result;
}

Json identity() {
    return {
        {"engine", REFERENCE_ENGINE},
        {"engine_version", REFERENCE_VERSION},
        {"engine_commit", REFERENCE_COMMIT},
        {"engine_compiler", REFERENCE_COMPILER},
        {"isa", isa()},
    };
}

void need_memory(uint64_t bytes, const std::string & what) {
    std::ifstream meminfo("/proc/meminfo");
    std::string key;
    uint64_t kibibytes = 0;
    while (meminfo >> key >> kibibytes) {
        if (key == "MemAvailable:" && bytes / 1024 > kibibytes) {
            throw Failure("not enough memory: " + what + " takes " + std::to_string(bytes >> 20) +
                          " MiB, " + std::to_string(kibibytes >> 10) + " MiB are available");
        }
        meminfo.ignore(64, '\n'); // the unit
    }
}

static uint64_t metadata(const llama_model * model, const std::string & key, uint64_t otherwise) {
    char architecture[128], value[128];
    if (llama_model_meta_val_str(model, "general.architecture", architecture,
                                 sizeof architecture) < 0 ||
        llama_model_meta_val_str(model, (architecture + ("." + key)).c_str(), value,
                                 sizeof value) < 0) {
        return otherwise;
    }
    return std::strtoull(value, nullptr, 10);
}

// Bytes of keys and values; an overestimate for layers with a window.
static uint64_t cache_bytes(const llama_model * model, uint64_t n_ctx,
                            const compat::Settings & settings) {
    uint64_t n_head = std::max<uint64_t>(1, metadata(model, "attention.head_count", 1));
    uint64_t n_head_kv = metadata(model, "attention.head_count_kv", n_head);
    uint64_t width = (uint64_t) llama_model_n_embd(model) / n_head;
    auto bytes = [&](const char * key, ggml_type type) {
        uint64_t row = std::min<uint64_t>(metadata(model, key, width) * n_head_kv, 1 << 24);
        return row * ggml_type_size(type) / ggml_blck_size(type);
    };
    return (uint64_t) compat::n_layer(model) * n_ctx *
           (bytes("attention.key_length", settings.cache_type_k) +
            bytes("attention.value_length", settings.cache_type_v));
}

static std::string thread_contract(int threads, int threads_batch) {
    return std::to_string(threads) + " OpenMP thread" + (threads == 1 ? "" : "s") +
           " for decode, " + std::to_string(threads_batch) + " for prompts";
}

Json load(Engine & engine, const Fields & request) {
    engine.context.reset();
    engine.model.reset();
    engine.forced = 0;

    Engine next;
    const std::string path = request.text("model");
    next.threads = (int) request.count("threads", 1, MOST_THREADS);
    next.threads_batch = (int) request.count("threads_batch", 1, MOST_THREADS);
    next.n_ctx = (uint32_t) request.count("n_ctx", 1, 1 << 24);
    next.n_batch = next.n_ctx; // any prompt that fits is one batch
    next.n_ubatch = (uint32_t) request.count("n_ubatch", 1, 1 << 20);
    next.settings = settings(request.object("options"));

    struct stat file;
    if (stat(path.c_str(), &file) != 0) {
        throw Failure("cannot open " + path + ": " + std::strerror(errno));
    }
    if (!S_ISREG(file.st_mode)) {
        throw Failure("cannot open " + path + ": not a file");
    }
    need_memory((uint64_t) file.st_size, path);

    auto begun = std::chrono::steady_clock::now();
    next.model.reset(
        llama_model_load_from_file(path.c_str(), compat::model_params(next.settings)));
    if (!next.model) {
        throw Failure(with_log("cannot load " + path));
    }
    need_memory(cache_bytes(next.model.get(), next.n_ctx, next.settings), "the context");
    llama_context_params params = llama_context_default_params();
    params.n_ctx = next.n_ctx;
    params.n_batch = next.n_batch;
    params.n_ubatch = next.n_ubatch;
    params.n_seq_max = 1;
    params.n_threads = next.threads;
    params.n_threads_batch = next.threads_batch;
    next.recorder = std::make_unique<Recorder>();
    params.cb_eval = Recorder::see;
    params.cb_eval_user_data = next.recorder.get();
    compat::context_params(params, next.settings);
    next.context.reset(llama_init_from_model(next.model.get(), params));
    if (!next.context) {
        throw Failure(with_log("cannot make a context for " + path));
    }
    auto taken = std::chrono::steady_clock::now() - begun;

    next.n_batch = llama_n_batch(next.context.get());
    next.n_ubatch = llama_n_ubatch(next.context.get());
    engine.model = std::move(next.model);
    engine.context = std::move(next.context);
    engine.recorder = std::move(next.recorder);
    engine.settings = next.settings;
    engine.n_ctx = next.n_ctx;
    engine.n_batch = next.n_batch;
    engine.n_ubatch = next.n_ubatch;
    engine.threads = next.threads;
    engine.threads_batch = next.threads_batch;

    Json answer = identity();
    answer["route"] = "-";
    answer["numerics"] = "-";
    answer["threads"] = engine.threads;
    answer["threads_batch"] = engine.threads_batch;
    answer["thread_contract"] = thread_contract(engine.threads, engine.threads_batch);
    answer["load_ns"] = std::chrono::nanoseconds(taken).count();
    answer["pack_ns"] = nullptr; // libllama packs while it reads and does not say how long
    answer["options"] = options(engine.settings);
    answer["options"]["n_batch"] = engine.n_batch;
    answer["options"]["n_ubatch"] = engine.n_ubatch;
    return answer;
}
