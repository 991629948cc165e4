#include "output.h"

#include "failure.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

[[noreturn]] static void cannot_write(const std::string & path, const std::string & why) {
    throw Failure("cannot write " + path + ": " + why);
}

NewFile::NewFile(std::string path_)
    : path(std::move(path_)), partial(path + ".partial-" + std::to_string(getpid())) {
    struct stat old;
    if (stat(path.c_str(), &old) == 0 && !S_ISREG(old.st_mode)) {
        cannot_write(path, "something is there that is no file"); // a folder, or a device
    }
    stream.open(partial, std::ios::binary | std::ios::trunc);
    if (!stream) {
        cannot_write(partial, std::strerror(errno));
    }
}

NewFile::~NewFile() {
    if (!partial.empty()) {
        stream.close();
        std::remove(partial.c_str());
    }
}

void NewFile::add(const float * values, size_t count) {
    std::vector<unsigned char> bytes(count * 4);
    for (size_t at = 0; at < count; at++) {
        uint32_t bits;
        std::memcpy(&bits, &values[at], sizeof bits);
        to_little_endian(bits, &bytes[at * 4]);
    }
    stream.write((const char *) bytes.data(), (std::streamsize) bytes.size());
    if (!stream) {
        cannot_write(path, std::strerror(errno));
    }
}

void NewFile::finish() {
    stream.close();
    if (!stream || std::rename(partial.c_str(), path.c_str()) != 0) {
        cannot_write(path, std::strerror(errno));
    }
    partial.clear();
}

void to_little_endian(uint32_t bits, unsigned char bytes[4]) {
    for (int at = 0; at < 4; at++) {
        bytes[at] = (unsigned char) (bits >> 8 * at);
    }
}
