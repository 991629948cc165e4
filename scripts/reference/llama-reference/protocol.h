// Lines in, fields out of them, and the thread that watches standard input.
#pragma once

#include "failure.h"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

using Json = nlohmann::ordered_json;

// An object's fields, each checked as it is read.
class Fields {
  public:
    explicit Fields(const Json & object);

    // An integer within bounds.
    uint64_t count(const char * key, uint64_t least, uint64_t most) const;
    // The same, or nothing when it is absent or null.
    std::optional<uint64_t> optional_count(const char * key, uint64_t least, uint64_t most) const;
    // Tokens of a vocabulary of so many.
    std::vector<int32_t> tokens(const char * key, int n_vocab) const;
    std::string text(const char * key) const;
    std::optional<std::string> optional_text(const char * key) const;
    bool flag(const char * key, std::optional<bool> otherwise) const;
    // An object; an empty one when it is absent.
    Json object(const char * key) const;
    // An object of texts; an empty one when it is absent.
    std::map<std::string, std::string> texts(const char * key) const;

  private:
    const Json * find(const char * key) const;
    const Json & need(const char * key) const;
    const Json & fields;
};

// Reads requests on a thread of its own, so that the program ends as soon as its input does,
// whatever it is computing. (A file as input is worked through first: it is a person's.)
class Requests {
  public:
    void start();
    // The next line; nothing when there are no more. `whole` is false of a line that was too
    // long to keep.
    struct Line {
        std::string text;
        bool whole = true;
    };
    std::optional<Line> next();

  private:
    void read();
    void put(Line line);
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Line> lines;
    bool ended = false;
};
