#include "kernels.h"

#include "engine.h"

#include <algorithm>
#include <chrono>
#include <cstring>

using Clock = std::chrono::steady_clock;

constexpr uint64_t MOST = 1 << 24; // of any one size

Context tensor_context() {
    ggml_init_params params{};
    params.mem_size = 64 * ggml_tensor_overhead() + ggml_graph_overhead();
    params.no_alloc = true;
    Context context(ggml_init(params));
    if (!context) {
        throw Failure("ggml has no context left");
    }
    return context;
}

Case::Case(int threads)
    : weights(tensor_context()), context(tensor_context()), backend(ggml_backend_cpu_init()) {
    if (!backend) {
        throw Failure("ggml has no CPU backend");
    }
    ggml_backend_cpu_set_n_threads(backend.get(), threads);
}

Case::~Case() {
    if (compute_plan) {
        ggml_backend_graph_plan_free(backend.get(), compute_plan);
    }
}

void Case::plan(ggml_tensor * result) {
    graph = ggml_new_graph(context.get());
    ggml_build_forward_expand(graph, result);
    uint64_t bytes = 0;
    ggml_tensor * each = ggml_get_first_tensor(context.get());
    for (; each; each = ggml_get_next_tensor(context.get(), each)) {
        bytes += each->view_src ? 0 : ggml_nbytes(each);
    }
    need_memory(bytes, "the kernel case");
    buffer.reset(ggml_backend_alloc_ctx_tensors(context.get(), backend.get()));
    if (!buffer) {
        throw Failure(with_log("no memory for the kernel case"));
    }
    compute_plan = ggml_backend_graph_plan_create(backend.get(), graph);
    if (!compute_plan) {
        throw Failure(with_log("ggml cannot plan the kernel case"));
    }
}

void Case::compute() {
    if (ggml_backend_graph_plan_compute(backend.get(), compute_plan) != GGML_STATUS_SUCCESS) {
        throw Failure(with_log("ggml could not compute the kernel case"));
    }
}

void Numbers::fill(ggml_tensor * tensor) {
    std::vector<float> row((size_t) tensor->ne[0]);
    for (int64_t at = 0; at < ggml_nrows(tensor); at++) {
        std::generate(row.begin(), row.end(), [this] { return next(); });
        ggml_backend_tensor_set(tensor, row.data(), (size_t) at * row.size() * sizeof(float),
                                row.size() * sizeof(float));
    }
}

static ggml_type weight_type(const std::string & wanted) {
    for (ggml_type type : {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q4_0,
                           GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, GGML_TYPE_Q8_0,
                           GGML_TYPE_Q2_K, GGML_TYPE_Q3_K, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K,
                           GGML_TYPE_Q6_K, GGML_TYPE_IQ4_NL, GGML_TYPE_IQ4_XS}) {
        std::string name = ggml_type_name(type);
        for (char & letter : name) {
            letter = (char) std::tolower((unsigned char) letter);
        }
        if (name == wanted) {
            return type;
        }
    }
    throw Failure("type '" + wanted + "' is none that weights can have here");
}

// Whether the CPU multiplies weights that lie in such a buffer, asked as the model loader does:
// with a buffer of no size.
static bool takes(ggml_backend_buffer_type_t type, ggml_type ty, int64_t rows, int64_t cols) {
    Context context = tensor_context();
    ggml_tensor * w = ggml_new_tensor_2d(context.get(), ty, cols, rows);
    ggml_tensor * x = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, cols, 512);
    ggml_tensor * y = ggml_mul_mat(context.get(), w, x);
    Buffer nothing(ggml_backend_buft_alloc_buffer(type, 0));
    w->buffer = nothing.get();
    return compat::supports(y);
}

static ggml_backend_buffer_type_t weights_buffer_type(ggml_tensor * w, bool repack) {
    if (repack) {
        for (ggml_backend_buffer_type_t type : compat::packing_buffer_types()) {
            if (takes(type, w->type, w->ne[1], w->ne[0])) {
                return type;
            }
        }
    }
    return compat::plain_buffer_type();
}

// Random rows of a type, `[rows, cols]`. Time does not depend on the values, so that a few
// hundred rows over and over do.
static std::vector<uint8_t> random_weights(ggml_type type, size_t rows, size_t cols) {
    const size_t row_bytes = ggml_row_size(type, (int64_t) cols);
    const size_t distinct = std::min<size_t>(rows, 256);
    std::vector<uint8_t> data(rows * row_bytes);
    std::vector<float> row(cols);
    Numbers numbers;
    for (size_t at = 0; at < distinct; at++) {
        std::generate(row.begin(), row.end(), [&] { return numbers.next(); });
        ggml_quantize_chunk(type, row.data(), data.data() + at * row_bytes, 0, 1, (int64_t) cols,
                            nullptr);
    }
    for (size_t at = distinct; at < rows; at++) {
        std::memcpy(&data[at * row_bytes], &data[at % distinct * row_bytes], row_bytes);
    }
    return data;
}

std::unique_ptr<Case> matmul_case(const Fields & request, const compat::Settings & settings) {
    const ggml_type type = weight_type(request.text("ty"));
    const auto rows = (int64_t) request.count("rows", 1, MOST);
    const auto cols = (int64_t) request.count("cols", 1, MOST);
    const auto tokens = (int64_t) request.count("tokens", 1, MOST);
    if (cols % ggml_blck_size(type) != 0) {
        throw Failure("key 'cols' must be a multiple of " + std::to_string(ggml_blck_size(type)) +
                      " for this type");
    }
    const uint64_t bytes = (uint64_t) rows * ggml_row_size(type, cols);
    need_memory(2 * bytes + (uint64_t) (rows + cols) * tokens * sizeof(float), "the matmul");

    auto result = std::make_unique<Case>((int) request.count("threads", 1, MOST_THREADS));
    ggml_tensor * w = ggml_new_tensor_2d(result->weights.get(), type, cols, rows);
    ggml_backend_buffer_type_t where = weights_buffer_type(w, settings.repack);
    result->weights_buffer.reset(
        ggml_backend_alloc_ctx_tensors_from_buft(result->weights.get(), where));
    if (!result->weights_buffer) {
        throw Failure(with_log("no memory for the weights"));
    }
    ggml_backend_buffer_set_usage(result->weights_buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    const std::vector<uint8_t> data = random_weights(type, (size_t) rows, (size_t) cols);
    ggml_backend_tensor_set(w, data.data(), 0, data.size());
    compat::pack(w, settings);

    ggml_tensor * x = ggml_new_tensor_2d(result->context.get(), GGML_TYPE_F32, cols, tokens);
    result->plan(ggml_mul_mat(result->context.get(), w, x));
    Numbers().fill(x);
    result->variant = std::string("ggml_mul_mat, ") + ggml_type_name(w->type) + " weights in " +
                      compat::buffer_name(where) + " buffer";
    return result;
}

std::unique_ptr<Case> rms_norm_case(const Fields & request) {
    const auto width = (int64_t) request.count("width", 1, MOST);
    const auto tokens = (int64_t) request.count("tokens", 1, MOST);
    need_memory(3 * (uint64_t) width * tokens * sizeof(float), "the norm");
    auto result = std::make_unique<Case>((int) request.count("threads", 1, MOST_THREADS));
    ggml_context * context = result->context.get();
    ggml_tensor * x = ggml_new_tensor_2d(context, GGML_TYPE_F32, width, tokens);
    ggml_tensor * w = ggml_new_tensor_1d(context, GGML_TYPE_F32, width);
    result->plan(compat::rms_norm(context, x, w));
    Numbers numbers;
    numbers.fill(x);
    numbers.fill(w);
    result->variant = compat::RMS_NORM;
    return result;
}

Json Kernels::prepare(const Fields & request) {
    current.reset();
    const std::string kernel = request.text("kernel");
    const compat::Settings wanted = settings(request.object("options"));
    if (kernel == "matmul") {
        current = matmul_case(request, wanted);
    } else if (kernel == "attention") {
        current = attention_case(request, wanted);
    } else if (kernel == "rms_norm") {
        current = rms_norm_case(request);
    } else {
        throw Failure("kernel '" + kernel + "' is not known");
    }
    current->compute(); // so that what cannot be computed fails here
    Json answer = identity();
    answer["variant"] = current->variant;
    return answer;
}

Json Kernels::run(const Fields & request) {
    if (!current) {
        throw Failure("no kernel case is set up");
    }
    return timed(request, [this](uint64_t count) {
        const auto begun = Clock::now();
        for (uint64_t at = 0; at < count; at++) {
            current->compute();
        }
        return (int64_t) std::chrono::nanoseconds(Clock::now() - begun).count();
    });
}

Json timed(const Fields & request, const std::function<int64_t(uint64_t)> & times) {
    const uint64_t samples = request.count("samples", 1, 100000);
    const auto least = (int64_t) request.count("min_sample_ns", 0, 60'000'000'000);
    // Warms up, and finds how many operations a sample needs.
    uint64_t count = 1;
    int64_t taken = times(count);
    while (taken < least) {
        const uint64_t scaled = count * (uint64_t) (least / std::max<int64_t>(taken, 1));
        count = std::max(count + 1, std::min(scaled + scaled / 8, count * 10));
        taken = times(count);
    }
    std::vector<double> ns;
    for (uint64_t at = 0; at < samples; at++) {
        ns.push_back((double) times(count) / (double) count);
    }
    return {{"ns", ns}, {"operations", count}};
}

Json time_barrier(const Fields & request) {
    const auto threads = (int) request.count("threads", 1, MOST_THREADS);
    return timed(request, [threads](uint64_t count) {
        int64_t taken = 0;
#pragma omp parallel num_threads(threads) shared(taken)
        {
#pragma omp barrier
            const auto begun = Clock::now();
            for (uint64_t at = 0; at < count; at++) {
#pragma omp barrier
            }
#pragma omp master
            taken = std::chrono::nanoseconds(Clock::now() - begun).count();
        }
        return taken;
    });
}
