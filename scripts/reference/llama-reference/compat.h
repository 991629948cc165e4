// The two llama.h that this program is built against: llama.cpp's own, and ik_llama.cpp's
// (REFERENCE_IK), which grew from an older one. All differences are here.
#pragma once

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml.h"
#include "llama.h"

#include "failure.h"
#include "point.h"

#ifndef REFERENCE_IK
#include "ggml-cpu.h"
#endif

#include <array>
#include <optional>
#include <vector>

#ifdef REFERENCE_IK
extern "C" void iqk_repack_tensor(ggml_tensor * tensor);
#endif

namespace compat {

// The options that a tree knows: `repack` is llama.cpp's way of laying weights out for the
// processor, `run_time_repack` is ik_llama.cpp's.
#ifdef REFERENCE_IK
constexpr const char * REPACK = "run_time_repack";
constexpr bool REPACK_DEFAULT = false;
#else
constexpr const char * REPACK = "repack";
constexpr bool REPACK_DEFAULT = true;
#endif

struct Settings {
    bool flash_attention = true;
    bool repack = REPACK_DEFAULT;
    bool mmap = true;
    ggml_type cache_type_k = GGML_TYPE_F16;
    ggml_type cache_type_v = GGML_TYPE_F16;
};

inline llama_model_params model_params(const Settings & settings) {
    llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = 0;
#ifdef REFERENCE_IK
    params.use_mmap = settings.mmap;
    params.repack_tensors = settings.repack;
    params.flash_attn = settings.flash_attention;
#else
    params.load_mode = settings.mmap ? LLAMA_LOAD_MODE_MMAP : LLAMA_LOAD_MODE_NONE;
    params.use_extra_bufts = settings.repack;
#endif
    return params;
}

inline void context_params(llama_context_params & params, const Settings & settings) {
    params.type_k = settings.cache_type_k;
    params.type_v = settings.cache_type_v;
#ifdef REFERENCE_IK
    params.flash_attn = settings.flash_attention;
#else
    params.flash_attn_type =
        settings.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.swa_full = false; // as llama.cpp's own programs do: windowed layers cache their window
    params.no_perf = true;
#endif
}

inline void free_model(llama_model * model) {
#ifdef REFERENCE_IK
    llama_free_model(model);
#else
    llama_model_free(model);
#endif
}

inline void clear_cache(llama_context * context) {
#ifdef REFERENCE_IK
    llama_kv_cache_clear(context);
#else
    llama_memory_clear(llama_get_memory(context), false);
#endif
}

inline int n_vocab(const llama_model * model) {
#ifdef REFERENCE_IK
    return llama_n_vocab(model);
#else
    return llama_vocab_n_tokens(llama_model_get_vocab(model));
#endif
}

inline int n_layer(const llama_model * model) {
#ifdef REFERENCE_IK
    return llama_n_layer(model);
#else
    return llama_model_n_layer(model);
#endif
}

inline int tokenize(const llama_model * model, const char * text, int length, llama_token * ids,
                    int capacity) {
#ifdef REFERENCE_IK
    return llama_tokenize(model, text, length, ids, capacity, true, true);
#else
    return llama_tokenize(llama_model_get_vocab(model), text, length, ids, capacity, true, true);
#endif
}

inline int piece(const llama_model * model, llama_token id, char * text, int capacity) {
#ifdef REFERENCE_IK
    return llama_token_to_piece(model, id, text, capacity, 0, false);
#else
    return llama_token_to_piece(llama_model_get_vocab(model), id, text, capacity, 0, false);
#endif
}

// One sequence's tokens at the positions from `at`; logits of the last alone.
inline llama_batch batch(llama_token * ids, int count, int at) {
#ifdef REFERENCE_IK
    return llama_batch_get_one(ids, count, at, 0);
#else
    (void) at; // it counts for itself
    return llama_batch_get_one(ids, count);
#endif
}

inline ggml_backend_buffer_type_t plain_buffer_type() {
    return ggml_backend_cpu_buffer_type();
}

// Buffer types that lay weights out anew, in the order in which the model loader tries them.
inline std::vector<ggml_backend_buffer_type_t> packing_buffer_types() {
    std::vector<ggml_backend_buffer_type_t> types;
#ifndef REFERENCE_IK
    ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    ggml_backend_reg_t registry = ggml_backend_dev_backend_reg(device);
    auto get = (ggml_backend_dev_get_extra_bufts_t) ggml_backend_reg_get_proc_address(
        registry, "ggml_backend_dev_get_extra_bufts");
    ggml_backend_buffer_type_t * each = get ? get(device) : nullptr;
    for (; each && *each; each++) {
        types.push_back(*each);
    }
#endif
    return types;
}

inline const char * buffer_name(ggml_backend_buffer_type_t type) {
    return ggml_backend_buft_name(type);
}

inline bool supports(const ggml_tensor * operation) {
#ifdef REFERENCE_IK
    (void) operation;
    return true;
#else
    return ggml_backend_dev_supports_op(
        ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU), operation);
#endif
}

// Packs weights in place, where that is not their buffer's work.
inline void pack(ggml_tensor * weights, const Settings & settings) {
#ifdef REFERENCE_IK
    if (settings.repack) {
        // With AVX-512 these are multiplied 16 rows at a time, though they are packed by 8: others
        // would end the program.
        const bool by_16 = weights->type == GGML_TYPE_Q4_0 || weights->type == GGML_TYPE_Q8_0;
        if (by_16 && weights->ne[1] % 16 != 0) {
            throw Failure("with run_time_repack, 'rows' must be a multiple of 16 for this type");
        }
        iqk_repack_tensor(weights);
    }
#else
    (void) weights;
    (void) settings;
#endif
}

// A name that the tree's model graphs give to tensors, without its layer, and the point that it is.
// Where a graph gives one to several tensors in a row, the last of them is meant.
struct TensorName {
    const char * name;
    Point point;
};
#ifdef REFERENCE_IK
constexpr TensorName TENSOR_NAMES[] = {
    {"inp_embd", Point::EMBEDDING},
    {"inp_scaled", Point::EMBEDDING},
    {"attn_norm", Point::ATTN_NORM},
    {"Qcur", Point::QUERY},
    {"Qcur_roped", Point::QUERY},
    {"Kcur", Point::KEY},
    {"Kcur_roped", Point::KEY},
    {"Vcur", Point::VALUE},
    {"fa", Point::ATTENDED}, // `kqv_out` is a product with the output matrix here
    {"kqv_merged_cont", Point::ATTENDED},
    {"ffn_norm", Point::ATTN_RESIDUAL}, // the norm's input, see named_point
    {"ffn_up_gate", Point::FFN_HIDDEN},
    {"ffn_out", Point::FFN_OUT},
    {"l_out", Point::LAYER_OUT},
    {"result_norm", Point::OUTPUT_NORM},
};
#else
constexpr TensorName TENSOR_NAMES[] = {
    {"embd", Point::EMBEDDING},
    {"inp_scaled", Point::EMBEDDING},
    {"attn_norm", Point::ATTN_NORM},
    {"Qcur", Point::QUERY},
    {"Kcur", Point::KEY},
    {"Vcur", Point::VALUE},
    {"kqv_out", Point::ATTENDED},
    {"ffn_inp", Point::ATTN_RESIDUAL},
    {"sa_out", Point::ATTN_RESIDUAL},
    {"ffn_norm", Point::FFN_NORM},
    {"ffn_swiglu", Point::FFN_HIDDEN},
    {"ffn_geglu", Point::FFN_HIDDEN},
    {"ffn_gate_par", Point::FFN_HIDDEN},
    {"ffn_out", Point::FFN_OUT},
    {"l_out", Point::LAYER_OUT},
    {"result_norm", Point::OUTPUT_NORM},
};
#endif

// What a tensor is whose name stands for `point`.
inline Point named_point(Point point, const ggml_tensor & tensor) {
#ifdef REFERENCE_IK
    // Its mixtures of experts name the norm's result so, its plain feed-forward the input.
    if (point == Point::ATTN_RESIDUAL && tensor.op == GGML_OP_FUSED_RMS_NORM) {
        return Point::FFN_NORM;
    }
#else
    (void) tensor;
#endif
    return point;
}

// The tensors that a batch showed last, by point.
using Sources = std::array<const ggml_tensor *, POINTS>;

// What a tensor without a name is, by what it is computed from; its layer is its source's.
inline std::optional<Point> unnamed_point(const ggml_tensor & tensor, const Sources & sources) {
#ifdef REFERENCE_IK
    auto is = [&](const ggml_tensor * source, Point point) {
        return source && source == sources[(size_t) point];
    };
    if (tensor.op == GGML_OP_FUSED_RMS_NORM && is(tensor.src[0], Point::ATTN_RESIDUAL)) {
        return Point::FFN_NORM;
    }
    if (tensor.op == GGML_OP_MUL_MAT && is(tensor.src[1], Point::FFN_HIDDEN)) {
        return Point::FFN_OUT;
    }
#else
    (void) tensor;
    (void) sources;
#endif
    return std::nullopt;
}

// Rows of an attention mask over so many queries.
inline int64_t mask_rows(int64_t tokens) {
#ifdef GGML_KQ_MASK_PAD
    return GGML_PAD(tokens, GGML_KQ_MASK_PAD);
#else
    return tokens;
#endif
}

#ifdef REFERENCE_IK
constexpr const char * RMS_NORM = "ggml_fused_rms_norm";
#else
constexpr const char * RMS_NORM = "ggml_rms_norm, ggml_mul";
#endif

// RMS norm with weights, as the tree's own model graphs build it.
inline ggml_tensor * rms_norm(ggml_context * context, ggml_tensor * x, ggml_tensor * weights) {
    constexpr float EPSILON = 1e-6f;
#ifdef REFERENCE_IK
    return ggml_fused_rms_norm(context, x, weights, EPSILON);
#else
    return ggml_mul(context, ggml_rms_norm(context, x, EPSILON), weights);
#endif
}

} // namespace compat
