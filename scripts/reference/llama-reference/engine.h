// The model and context that a Load made, and what the engine says of itself.
#pragma once

#include "compat.h"
#include "protocol.h"
#include "recorder.h"

#include <memory>
#include <string>

// Most threads that ggml takes.
constexpr uint64_t MOST_THREADS = 512;

struct FreeModel {
    void operator()(llama_model * model) const { compat::free_model(model); }
};
struct FreeContext {
    void operator()(llama_context * context) const { llama_free(context); }
};

// What is loaded.
struct Engine {
    std::unique_ptr<llama_model, FreeModel> model;
    std::unique_ptr<Recorder> recorder;                  // of the context
    std::unique_ptr<llama_context, FreeContext> context; // freed before these
    size_t forced = 0; // tokens of the context, where `force` can go on from it; else 0
    compat::Settings settings;
    uint32_t n_ctx = 0; // as asked for; the context may hold some more
    uint32_t n_batch = 0;
    uint32_t n_ubatch = 0;
    int threads = 0;
    int threads_batch = 0;
};

// Keeps the engine's messages on standard error, and the last of them for `with_log`.
void catch_log();
// Forgets the messages so far.
void forget_log();
// A reason, with the last error that the engine logged.
std::string with_log(const std::string & reason);

// The settings that options ask for; an option that is not known is a failure.
compat::Settings settings(const Json & options);
// The options that settings are.
Json options(const compat::Settings & settings);

// Instruction sets in use, without those that go without saying: `avx2+avx512+amx_int8`.
std::string isa();
// Engine, version, commit and compiler, for an answer.
Json identity();

// Fails unless so many bytes are free.
void need_memory(uint64_t bytes, const std::string & what);

// Loads what the request asks for and answers it.
Json load(Engine & engine, const Fields & request);
