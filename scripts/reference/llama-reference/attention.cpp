// Causal attention over an f16 cache, laid out as llama.cpp's own: keys and values of a position
// side by side, values transposed without flash attention, and the cache seen in steps of 256
// positions, the last ones masked.
#include "engine.h"
#include "kernels.h"

#include <algorithm>
#include <cmath>

constexpr uint64_t CACHE_STEP = 256;

// Fills an f16 tensor.
static void fill_f16(Numbers & numbers, ggml_tensor * tensor) {
    std::vector<ggml_fp16_t> row((size_t) tensor->ne[0]);
    for (int64_t at = 0; at < ggml_nrows(tensor); at++) {
        std::generate(row.begin(), row.end(), [&] { return ggml_fp32_to_fp16(numbers.next()); });
        ggml_backend_tensor_set(tensor, row.data(), (size_t) at * row.size() * sizeof row[0],
                                row.size() * sizeof row[0]);
    }
}

// Query `at` of `tokens` sees the positions up to its own.
static void fill_mask(ggml_tensor * mask, uint64_t depth, uint64_t tokens) {
    const ggml_fp16_t open = ggml_fp32_to_fp16(0.0f), shut = ggml_fp32_to_fp16(-INFINITY);
    std::vector<ggml_fp16_t> row((size_t) mask->ne[0]);
    for (uint64_t at = 0; at < (uint64_t) mask->ne[1]; at++) {
        const uint64_t seen = at < tokens ? depth - tokens + at + 1 : 0;
        std::fill(row.begin(), row.begin() + (ptrdiff_t) seen, open);
        std::fill(row.begin() + (ptrdiff_t) seen, row.end(), shut);
        ggml_backend_tensor_set(mask, row.data(), at * row.size() * sizeof row[0],
                                row.size() * sizeof row[0]);
    }
}

std::unique_ptr<Case> attention_case(const Fields & request, const compat::Settings & settings) {
    const auto n_head = (int64_t) request.count("n_head", 1, 4096);
    const auto n_head_kv = (int64_t) request.count("n_head_kv", 1, 4096);
    const auto head_dim = (int64_t) request.count("head_dim", 1, 4096);
    const uint64_t depth = request.count("depth", 1, 1 << 24);
    const uint64_t tokens = request.count("tokens", 1, depth);
    if (n_head % n_head_kv != 0) {
        throw Failure("key 'n_head' must be a multiple of 'n_head_kv'");
    }
    if (head_dim % 32 != 0) {
        throw Failure("key 'head_dim' must be a multiple of 32");
    }
    const auto n_kv = (int64_t) ((depth + CACHE_STEP - 1) / CACHE_STEP * CACHE_STEP);
    const auto n_tokens = (int64_t) tokens;
    const int64_t n_mask = compat::mask_rows(n_tokens);
    const auto cache = (uint64_t) (2 * head_dim * n_head_kv * n_kv) * sizeof(ggml_fp16_t);
    const auto scores = (uint64_t) (n_kv * n_tokens) * (sizeof(ggml_fp16_t) + 8 * (uint64_t) n_head);
    need_memory(cache + scores, "the attention");

    auto result = std::make_unique<Case>((int) request.count("threads", 1, MOST_THREADS));
    ggml_context * context = result->context.get();
    ggml_tensor * q = ggml_new_tensor_3d(context, GGML_TYPE_F32, head_dim, n_head, n_tokens);
    ggml_tensor * k = ggml_new_tensor_3d(context, GGML_TYPE_F16, head_dim, n_head_kv, n_kv);
    ggml_tensor * mask = ggml_new_tensor_2d(context, GGML_TYPE_F16, n_kv, n_mask);
    ggml_tensor * queries = ggml_permute(context, q, 0, 2, 1, 3);
    ggml_tensor * keys = ggml_permute(context, k, 0, 2, 1, 3);
    const float scale = 1.0f / std::sqrt((float) head_dim);
    ggml_tensor * v;
    ggml_tensor * out;
    if (settings.flash_attention) {
        v = ggml_new_tensor_3d(context, GGML_TYPE_F16, head_dim, n_head_kv, n_kv);
        ggml_tensor * values = ggml_permute(context, v, 0, 2, 1, 3);
        out = ggml_flash_attn_ext(context, queries, keys, values, mask, scale, 0.0f, 0.0f);
        result->variant = "ggml_flash_attn_ext";
    } else {
        v = ggml_new_tensor_3d(context, GGML_TYPE_F16, n_kv, head_dim, n_head_kv);
        ggml_tensor * kq = ggml_mul_mat(context, keys, queries);
        ggml_tensor * weights = ggml_soft_max_ext(context, kq, mask, scale, 0.0f);
        ggml_tensor * kqv = ggml_mul_mat(context, v, weights);
        out = ggml_cont_2d(context, ggml_permute(context, kqv, 0, 2, 1, 3), head_dim * n_head,
                           n_tokens);
        result->variant = "ggml_mul_mat, ggml_soft_max_ext, ggml_mul_mat";
    }
    result->plan(out);
    Numbers numbers;
    numbers.fill(q);
    fill_f16(numbers, k);
    fill_f16(numbers, v);
    fill_mask(mask, depth, tokens);
    return result;
}
