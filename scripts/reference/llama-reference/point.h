// Points of a forward pass, as EMEL's src/model/point.rs names them, in the order of the pass.
#pragma once

#include <cstddef>

enum class Point {
    EMBEDDING,
    ATTN_NORM,
    QUERY,
    KEY,
    VALUE,
    ATTENDED,
    ATTN_RESIDUAL,
    FFN_NORM,
    FFN_HIDDEN,
    FFN_OUT,
    LAYER_OUT,
    OUTPUT_NORM,
};

constexpr const char * POINT_NAMES[] = {
    "embedding", "attn_norm",  "q",       "k",         "v",          "attended", "attn_residual",
    "ffn_norm",  "ffn_hidden", "ffn_out", "layer_out", "output_norm"};
constexpr size_t POINTS = sizeof POINT_NAMES / sizeof *POINT_NAMES;
