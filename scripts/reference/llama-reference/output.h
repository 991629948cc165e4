// Files that appear whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>

// A file in the making, beside its place. It is there after `finish`, in place of what was there;
// dropped before that, nothing is.
class NewFile {
  public:
    explicit NewFile(std::string path);
    ~NewFile();
    NewFile(const NewFile &) = delete;
    NewFile & operator=(const NewFile &) = delete;

    std::ofstream stream;

    // Appends f32 in little-endian order; fails as soon as there is no more room.
    void add(const float * values, size_t count);
    void finish();

  private:
    std::string path;
    std::string partial;
};

// The bytes of a 32-bit number, the lowest first.
void to_little_endian(uint32_t bits, unsigned char bytes[4]);
