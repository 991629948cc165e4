#include "protocol.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

// No request that means anything is longer: a prompt of a million tokens is a few megabytes.
static constexpr size_t LONGEST_LINE = 64 << 20;

Fields::Fields(const Json & object) : fields(object) {
    if (!object.is_object()) {
        throw Failure("a JSON object is due");
    }
}

const Json * Fields::find(const char * key) const {
    auto found = fields.find(key);
    return found == fields.end() || found->is_null() ? nullptr : &*found;
}

const Json & Fields::need(const char * key) const {
    const Json * value = find(key);
    if (!value) {
        throw Failure(std::string("key '") + key + "' is missing");
    }
    return *value;
}

uint64_t Fields::count(const char * key, uint64_t least, uint64_t most) const {
    const Json & value = need(key);
    if (!value.is_number_unsigned() || value.get<uint64_t>() < least ||
        value.get<uint64_t>() > most) {
        throw Failure(std::string("key '") + key + "' must be an integer from " +
                      std::to_string(least) + " to " + std::to_string(most));
    }
    return value.get<uint64_t>();
}

std::optional<uint64_t> Fields::optional_count(const char * key, uint64_t least,
                                               uint64_t most) const {
    return find(key) ? std::optional(count(key, least, most)) : std::nullopt;
}

std::vector<int32_t> Fields::tokens(const char * key, int n_vocab) const {
    const Json & value = need(key);
    if (!value.is_array()) {
        throw Failure(std::string("key '") + key + "' must be an array of token ids");
    }
    std::vector<int32_t> ids;
    for (const Json & id : value) {
        if (!id.is_number_unsigned() || id.get<uint64_t>() >= (uint64_t) n_vocab) {
            throw Failure(std::string("key '") + key + "' holds no token id at index " +
                          std::to_string(ids.size()) + ": ids are integers below " +
                          std::to_string(n_vocab));
        }
        ids.push_back(id.get<int32_t>());
    }
    return ids;
}

std::string Fields::text(const char * key) const {
    const Json & value = need(key);
    if (!value.is_string()) {
        throw Failure(std::string("key '") + key + "' must be a string");
    }
    return value.get<std::string>();
}

std::optional<std::string> Fields::optional_text(const char * key) const {
    return find(key) ? std::optional(text(key)) : std::nullopt;
}

bool Fields::flag(const char * key, std::optional<bool> otherwise) const {
    if (otherwise && !find(key)) {
        return *otherwise;
    }
    const Json & value = need(key);
    if (!value.is_boolean()) {
        throw Failure(std::string("key '") + key + "' must be true or false");
    }
    return value.get<bool>();
}

Json Fields::object(const char * key) const {
    const Json * value = find(key);
    if (value && !value->is_object()) {
        throw Failure(std::string("key '") + key + "' must be an object");
    }
    return value ? *value : Json::object();
}

std::map<std::string, std::string> Fields::texts(const char * key) const {
    std::map<std::string, std::string> result;
    const Json all = object(key);
    for (const auto & [name, value] : all.items()) {
        if (!value.is_string()) {
            throw Failure(std::string("key '") + key + "' must hold strings alone, '" + name +
                          "' is none");
        }
        result[name] = value.get<std::string>();
    }
    return result;
}

void Requests::start() {
    std::thread([this] { read(); }).detach();
}

void Requests::read() {
    Line line;
    char buffer[1 << 16];
    for (;;) {
        ssize_t got = ::read(STDIN_FILENO, buffer, sizeof buffer);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            break;
        }
        for (ssize_t at = 0; at < got; at++) {
            if (buffer[at] == '\n') {
                put(std::move(line));
                line = Line();
            } else if (line.text.size() < LONGEST_LINE) {
                line.text.push_back(buffer[at]);
            } else {
                line.whole = false;
            }
        }
    }
    struct stat input;
    if (fstat(STDIN_FILENO, &input) != 0 || !S_ISREG(input.st_mode)) {
        _exit(0); // whoever asked is gone
    }
    if (!line.text.empty()) {
        put(std::move(line)); // a last line without its end
    }
    std::lock_guard lock(mutex);
    ended = true;
    changed.notify_one();
}

void Requests::put(Line line) {
    std::lock_guard lock(mutex);
    lines.push_back(std::move(line));
    changed.notify_one();
}

std::optional<Requests::Line> Requests::next() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return ended || !lines.empty(); });
    if (lines.empty()) {
        return std::nullopt;
    }
    Line line = std::move(lines.front());
    lines.pop_front();
    return line;
}
