#include "force.h"

#include "decode.h"
#include "output.h"

#include <optional>

// Writes tensors one after the other and lists them.
static Json write(NewFile & file, const Recorder::Tensors & tensors) {
    Json list = Json::array();
    for (const auto & [place, values] : tensors) {
        const bool in_layer = place.layer != Place::BEFORE && place.layer != Place::AFTER;
        file.add(values.data(), values.size());
        list.push_back({
            {"layer", in_layer ? Json(place.layer) : Json()},
            {"point", POINT_NAMES[(size_t) place.point]},
            {"len", values.size()},
        });
    }
    return list;
}

Json force(Engine & engine, const Fields & request) {
    need_model(engine);
    const int n_vocab = compat::n_vocab(engine.model.get());
    std::vector<llama_token> ids = request.tokens("ids", n_vocab);
    if (ids.empty()) {
        throw Failure("key 'ids' is empty");
    }
    const size_t prompt = request.count("prompt", 0, ids.size());
    if (prompt == 0 && engine.forced == 0) {
        throw Failure("there is nothing to go on from: the first force after a load, a run or a "
                      "failed force needs a prompt");
    }
    const size_t begin = prompt == 0 ? engine.forced : 0;
    need_room(engine, begin + ids.size());
    const std::string logits_path = request.text("logits");
    const auto tensors_path = request.optional_text("tensors");
    if (tensors_path == logits_path) {
        throw Failure("'logits' and 'tensors' name one file");
    }
    NewFile logits(logits_path);
    std::optional<NewFile> tensors;
    if (tensors_path) {
        tensors.emplace(*tensors_path);
    }

    if (prompt > 0) {
        forget(engine);
    }
    engine.forced = 0; // until everything has gone well
    size_t rows = 0;
    size_t done = 0;
    Json list = Json::array();
    while (done < ids.size()) {
        const size_t some = done == 0 && prompt > 0 ? prompt : 1;
        const float * row = nullptr;
        auto pass = [&] { row = step(engine, ids.data() + done, some, begin + done); };
        if (tensors && done + some == ids.size()) {
            list = write(*tensors, engine.recorder->during(pass));
        } else {
            pass();
        }
        logits.add(row, (size_t) n_vocab);
        rows++;
        done += some;
    }
    if (tensors) {
        tensors->finish();
    }
    logits.finish();
    engine.forced = begin + ids.size();
    return {{"rows", rows}, {"n_vocab", n_vocab}, {"tensors", list}};
}
