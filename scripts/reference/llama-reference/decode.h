// Tokens through the model: what `run` and `force` share, so that both compute the same.
#pragma once

#include "engine.h"

// Fails unless a model is loaded.
void need_model(const Engine & engine);
// Fails unless the context holds so many tokens.
void need_room(const Engine & engine, size_t tokens);
// Empties the context.
void forget(Engine & engine);
// Feeds ids at the positions from `at` on and returns the last one's logits, computed.
const float * step(Engine & engine, llama_token * ids, size_t count, size_t at);
