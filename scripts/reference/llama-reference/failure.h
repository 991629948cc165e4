// What a request can fail with: the text goes into the answer's `error`, and the program goes on.
#pragma once

#include <stdexcept>

struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};
