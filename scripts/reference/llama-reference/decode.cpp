#include "decode.h"

#include <algorithm>

void need_model(const Engine & engine) {
    if (!engine.context) {
        throw Failure("no model is loaded");
    }
}

void need_room(const Engine & engine, size_t tokens) {
    if (tokens > engine.n_ctx) {
        throw Failure("there are " + std::to_string(tokens) + " tokens, the context holds " +
                      std::to_string(engine.n_ctx));
    }
}

void forget(Engine & engine) {
    engine.forced = 0;
    compat::clear_cache(engine.context.get());
}

const float * step(Engine & engine, llama_token * ids, size_t count, size_t at) {
    size_t done = 0;
    while (done < count) {
        size_t some = std::min<size_t>(count - done, engine.n_batch);
        int code = llama_decode(engine.context.get(),
                                compat::batch(ids + done, (int) some, (int) (at + done)));
        if (code != 0) {
            throw Failure(with_log("llama_decode failed with code " + std::to_string(code)));
        }
        done += some;
    }
    llama_synchronize(engine.context.get());
    const float * logits = llama_get_logits_ith(engine.context.get(), -1);
    if (!logits) {
        throw Failure(with_log("no logits"));
    }
    return logits;
}
