// What a pass computes on its way, seen through ggml's evaluation callback: the values of the last
// token at every point that the model's graph shows.
#pragma once

#include "compat.h"
#include "point.h"

#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

// Where in a pass. What belongs to no layer has layer -1, or, at the end, one after all.
struct Place {
    static constexpr int BEFORE = -1;
    static constexpr int AFTER = 1 << 30;
    int layer;
    Point point;
    bool operator<(const Place & other) const {
        return std::pair(layer, point) < std::pair(other.layer, other.point);
    }
};

class Recorder {
  public:
    using Tensors = std::map<Place, std::vector<float>>; // in the order of the pass

    // The callback, with a Recorder as its data. It wants nothing unless one records, and then
    // ggml computes the graph as it does without a callback.
    static bool see(ggml_tensor * tensor, bool ask, void * recorder);

    // Records while `pass` runs. Of a pass in several batches the last one's tensors stay.
    Tensors during(const std::function<void()> & pass);

  private:
    std::optional<Place> place(const ggml_tensor & tensor) const;
    void take(const ggml_tensor & tensor);

    bool recording = false;
    Tensors tensors;
    std::exception_ptr failure; // must not pass through ggml
    int64_t n_tokens = 1;       // of the batch that runs
    // What was taken last at a point, and its layer: what has no name is known by its source.
    compat::Sources sources = {};
    int layer = Place::BEFORE;
};
