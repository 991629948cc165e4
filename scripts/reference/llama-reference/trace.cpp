#include "trace.h"

#include "failure.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>

void Fnv64::add(const void * bytes, size_t count) {
    const auto * byte = static_cast<const unsigned char *>(bytes);
    for (size_t at = 0; at < count; at++) {
        value = (value ^ byte[at]) * 0x100000001b3;
    }
}

static void add_little_endian(Fnv64 & sum, uint32_t bits) {
    unsigned char bytes[4];
    to_little_endian(bits, bytes);
    sum.add(bytes, sizeof bytes);
}

void Fnv64::add_id(llama_token id) {
    add_little_endian(*this, (uint32_t) id);
}

void Fnv64::add_logits(const float * logits, size_t count) {
    for (size_t at = 0; at < count; at++) {
        uint32_t bits;
        std::memcpy(&bits, &logits[at], sizeof bits);
        add_little_endian(*this, bits);
    }
}

std::string Fnv64::hex() const {
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", (unsigned long long) value);
    return digits;
}

// The largest of up to BLOCK logits, in lanes that compilers turn into vectors; `numbers` is
// cleared when there is a NaN, which a comparison would pass over.
static constexpr size_t BLOCK = 512;
static constexpr size_t LANES = 16;

static float largest(const float * logits, size_t count, bool & numbers) {
    float lanes[LANES];
    std::fill(lanes, lanes + LANES, -INFINITY);
    int odd[LANES] = {};
    size_t at = 0;
    for (; at + LANES <= count; at += LANES) {
#pragma omp simd
        for (size_t lane = 0; lane < LANES; lane++) {
            const float logit = logits[at + lane];
            lanes[lane] = logit > lanes[lane] ? logit : lanes[lane];
            odd[lane] |= logit != logit; // NaN alone differs from itself
        }
    }
    for (; at < count; at++) {
        lanes[0] = logits[at] > lanes[0] ? logits[at] : lanes[0];
        odd[0] |= logits[at] != logits[at];
    }
    numbers &= std::count(odd, odd + LANES, 0) == LANES;
    return *std::max_element(lanes, lanes + LANES);
}

llama_token argmax(const float * logits, size_t count) {
    bool numbers = true;
    size_t best_block = 0;
    float best = -INFINITY;
    for (size_t block = 0; block < count; block += BLOCK) {
        const float here = largest(logits + block, std::min(BLOCK, count - block), numbers);
        if (here > best) {
            best = here;
            best_block = block;
        }
    }
    if (!numbers) {
        throw Failure("a logit is not a number (NaN)");
    }
    return (llama_token) (std::find(logits + best_block, logits + count, best) - logits);
}

std::vector<std::pair<llama_token, float>> runners_up(const float * logits, size_t count,
                                                      llama_token chosen, size_t wanted) {
    std::vector<llama_token> ids;
    ids.reserve(count);
    for (size_t id = 0; id < count; id++) {
        if ((llama_token) id != chosen) {
            ids.push_back((llama_token) id);
        }
    }
    wanted = std::min(wanted, ids.size());
    std::partial_sort(ids.begin(), ids.begin() + wanted, ids.end(),
                      [&](llama_token a, llama_token b) {
                          return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
                      });
    std::vector<std::pair<llama_token, float>> result;
    for (size_t at = 0; at < wanted; at++) {
        result.emplace_back(ids[at], logits[ids[at]]);
    }
    return result;
}

std::string shortest(float number) {
    if (std::isinf(number)) {
        return number < 0 ? "-inf" : "inf";
    }
    char digits[128]; // the smallest takes 48, the largest 40
    auto end = std::to_chars(digits, digits + sizeof digits, number, std::chars_format::fixed);
    return std::string(digits, end.ptr);
}

// A value must not end its line early.
static std::string one_line(std::string value) {
    for (char & letter : value) {
        if (letter == '\n' || letter == '\r') {
            letter = ' ';
        }
    }
    return value;
}

TraceWriter::TraceWriter(std::string path, const Pairs & header,
                         const std::vector<llama_token> & prompt)
    : file(std::move(path)) {
    file.stream << "# emel-token-trace/v1\n";
    for (const auto & [key, value] : header) {
        file.stream << "# " << one_line(key) << '=' << one_line(value) << '\n';
    }
    file.stream << "# prompt";
    for (llama_token id : prompt) {
        file.stream << ' ' << id;
    }
    file.stream << '\n';
}

void TraceWriter::token(llama_token id, float logit,
                        const std::vector<std::pair<llama_token, float>> & next) {
    file.stream << index++ << ' ' << id << ' ' << shortest(logit);
    for (const auto & [other, value] : next) {
        file.stream << ' ' << other << ':' << shortest(value);
    }
    file.stream << '\n';
}

void TraceWriter::finish(const std::string & stop) {
    file.stream << "# stop=" << stop << '\n';
    file.finish();
}
