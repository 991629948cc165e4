// Checksums, argmax and token traces, as EMEL's src/trace defines them.
#pragma once

#include "llama.h"
#include "output.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

// FNV-1a, 64 bits.
class Fnv64 {
  public:
    void add(const void * bytes, size_t count);
    void add_id(llama_token id);
    void add_logits(const float * logits, size_t count);
    // Sixteen hex digits.
    std::string hex() const;

  private:
    uint64_t value = 0xcbf29ce484222325;
};

// The id of the largest logit, the lowest on a tie; NaN is a failure.
llama_token argmax(const float * logits, size_t count);

// The `wanted` best after `chosen`, in descending order, the lowest id first on a tie.
std::vector<std::pair<llama_token, float>> runners_up(const float * logits, size_t count,
                                                      llama_token chosen, size_t wanted);

// As few digits as read back to the same bits, without an exponent.
std::string shortest(float number);

// A trace in the making; the file is there after finish.
class TraceWriter {
  public:
    using Pairs = std::vector<std::pair<std::string, std::string>>;
    TraceWriter(std::string path, const Pairs & header, const std::vector<llama_token> & prompt);

    void token(llama_token id, float logit,
               const std::vector<std::pair<llama_token, float>> & next);
    void finish(const std::string & stop);

  private:
    NewFile file;
    uint64_t index = 0;
};
