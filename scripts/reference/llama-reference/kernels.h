// Single operations of ggml, set up as its models use them, and timed.
#pragma once

#include "compat.h"
#include "protocol.h"

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

struct FreeGgml {
    void operator()(ggml_context * context) const { ggml_free(context); }
    void operator()(ggml_backend_buffer_t buffer) const { ggml_backend_buffer_free(buffer); }
    void operator()(ggml_backend_t backend) const { ggml_backend_free(backend); }
};
using Context = std::unique_ptr<ggml_context, FreeGgml>;
using Buffer = std::unique_ptr<std::remove_pointer_t<ggml_backend_buffer_t>, FreeGgml>;
using Backend = std::unique_ptr<std::remove_pointer_t<ggml_backend_t>, FreeGgml>;

// A context for tensors whose data is elsewhere.
Context tensor_context();

// A kernel case that is set up: tensors, a graph, and a plan to compute it by.
class Case {
  public:
    explicit Case(int threads);
    ~Case();
    Case(const Case &) = delete;
    Case & operator=(const Case &) = delete;

    // Gives every tensor of `context` memory, and makes the plan for `result`.
    void plan(ggml_tensor * result);
    void compute();

    Context weights;  // what is packed
    Context context;  // inputs and results
    Buffer weights_buffer;
    std::string variant;

  private:
    Backend backend;
    Buffer buffer;
    ggml_cgraph * graph = nullptr;
    ggml_backend_graph_plan_t compute_plan = nullptr;
};

// Seeded numbers in [-1, 1).
class Numbers {
  public:
    float next() { return uniform(engine); }
    // Fills an f32 tensor.
    void fill(ggml_tensor * tensor);

  private:
    std::mt19937 engine{20240229};
    std::uniform_real_distribution<float> uniform{-1.0f, 1.0f};
};

std::unique_ptr<Case> matmul_case(const Fields & request, const compat::Settings & settings);
std::unique_ptr<Case> attention_case(const Fields & request, const compat::Settings & settings);
std::unique_ptr<Case> rms_norm_case(const Fields & request);

class Kernels {
  public:
    Json prepare(const Fields & request);
    Json run(const Fields & request);

  private:
    std::unique_ptr<Case> current;
};

// Samples of an operation's time, as `samples` and `min_sample_ns` ask for them; `times` runs it
// so often and returns the nanoseconds that took.
Json timed(const Fields & request, const std::function<int64_t(uint64_t)> & times);

// The meeting of all threads.
Json time_barrier(const Fields & request);
