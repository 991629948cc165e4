#include "recorder.h"

#include "failure.h"

#include <charconv>
#include <cstring>
#include <string>
#include <string_view>

bool Recorder::see(ggml_tensor * tensor, bool ask, void * recorder) {
    Recorder & self = *static_cast<Recorder *>(recorder);
    if (!self.recording || !self.place(*tensor) || ggml_is_empty(tensor)) {
        return !ask; // a pass goes on after what nobody wanted
    }
    if (!ask && !self.failure) {
        try {
            self.take(*tensor);
        } catch (...) {
            self.failure = std::current_exception();
        }
    }
    return true;
}

Recorder::Tensors Recorder::during(const std::function<void()> & pass) {
    struct End {
        Recorder & recorder;
        ~End() {
            recorder.recording = false;
            recorder.tensors.clear();
            recorder.failure = nullptr;
        }
    } end{*this};
    recording = true;
    pass();
    if (failure) {
        std::rethrow_exception(failure);
    }
    return std::move(tensors);
}

// `ffn_norm-12` is `ffn_norm` of layer 12; a name without a number belongs to no layer.
static std::pair<std::string_view, std::optional<int>> split(std::string_view name) {
    const size_t dash = name.rfind('-');
    if (dash == std::string_view::npos) {
        return {name, std::nullopt};
    }
    int layer = 0;
    const char * end = name.data() + name.size();
    const auto read = std::from_chars(name.data() + dash + 1, end, layer);
    if (read.ec != std::errc() || read.ptr != end || layer < 0) {
        return {name, std::nullopt}; // ggml's own additions: `Qcur-3 (view)`
    }
    return {name.substr(0, dash), layer};
}

std::optional<Place> Recorder::place(const ggml_tensor & tensor) const {
    const auto [name, number] = split(tensor.name);
    for (const auto & known : compat::TENSOR_NAMES) {
        if (name == known.name) {
            const Point point = compat::named_point(known.point, tensor);
            const bool ends = point == Point::OUTPUT_NORM;
            return Place{number.value_or(ends ? Place::AFTER : Place::BEFORE), point};
        }
    }
    if (auto point = compat::unnamed_point(tensor, sources)) {
        return Place{layer, *point};
    }
    return std::nullopt;
}

// `count` elements at an offset, in f32.
static void append(std::vector<float> & values, const ggml_tensor & tensor, size_t offset,
                   int64_t count) {
    const size_t size = (size_t) count * ggml_type_size(tensor.type);
    std::vector<char> bytes(size);
    ggml_backend_tensor_get(&tensor, bytes.data(), offset, size);
    const size_t old = values.size();
    values.resize(old + (size_t) count);
    switch (tensor.type) {
    case GGML_TYPE_F32: std::memcpy(&values[old], bytes.data(), size); break;
    case GGML_TYPE_F16:
        ggml_fp16_to_fp32_row((const ggml_fp16_t *) bytes.data(), &values[old], count);
        break;
    case GGML_TYPE_BF16:
        ggml_bf16_to_fp32_row((const ggml_bf16_t *) bytes.data(), &values[old], count);
        break;
    default:
        throw Failure(std::string("tensor ") + tensor.name + " is of type " +
                      ggml_type_name(tensor.type) + ", which cannot be recorded");
    }
}

// The last token's values, head by head where there are heads. Tokens are the outermost dimension:
// `[width, tokens]` or `[head_dim, heads, tokens]`; in the last layer only what is put out is left.
static std::vector<float> last_token(const ggml_tensor & tensor, int64_t n_tokens) {
    const int outermost = ggml_n_dims(&tensor) - 1;
    int64_t first[GGML_MAX_DIMS] = {};
    if (outermost > 0 && tensor.ne[outermost] == n_tokens) {
        first[outermost] = n_tokens - 1;
    }
    const bool dense = tensor.nb[0] == ggml_type_size(tensor.type);
    const int64_t run = dense ? tensor.ne[0] : 1;
    std::vector<float> values;
    for (int64_t i3 = first[3]; i3 < tensor.ne[3]; i3++) {
        for (int64_t i2 = first[2]; i2 < tensor.ne[2]; i2++) {
            for (int64_t i1 = first[1]; i1 < tensor.ne[1]; i1++) {
                for (int64_t i0 = 0; i0 < tensor.ne[0]; i0 += run) {
                    append(values, tensor,
                           (size_t) i0 * tensor.nb[0] + (size_t) i1 * tensor.nb[1] +
                               (size_t) i2 * tensor.nb[2] + (size_t) i3 * tensor.nb[3],
                           run);
                }
            }
        }
    }
    return values;
}

void Recorder::take(const ggml_tensor & tensor) {
    const Place at = *place(tensor);
    if (at.point == Point::EMBEDDING) { // a batch begins
        n_tokens = tensor.ne[1];
        sources = {};
    }
    tensors[at] = last_token(tensor, n_tokens);
    sources[(size_t) at.point] = &tensor;
    layer = at.layer;
}
