// Numbers of any width up to 57 bits in a row, lowest bit first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

class BitWriter {
 public:
  explicit BitWriter(std::uint8_t* out) : out_(out) {}
  void put(std::uint64_t value, unsigned bits) {
    held_ |= static_cast<unsigned __int128>(value) << count_;
    count_ += bits;
    if (count_ < 64) return;
    const auto word = static_cast<std::uint64_t>(held_);
    std::memcpy(out_, &word, 8);
    out_ += 8, count_ -= 64, held_ >>= 64;
  }
  void end() {
    for (; count_; count_ -= count_ < 8 ? count_ : 8, held_ >>= 8) *out_++ = static_cast<std::uint8_t>(held_);
  }

 private:
  std::uint8_t* out_;
  unsigned __int128 held_ = 0;
  unsigned count_ = 0;
};

class BitReader {
 public:
  BitReader(const std::uint8_t* in, std::size_t bytes) : in_(in), bytes_(bytes) {}
  std::uint64_t next(unsigned bits) {
    std::uint64_t word = 0;
    const std::size_t byte = at_ / 8, left = bytes_ - byte;
    std::memcpy(&word, in_ + byte, left < 8 ? left : 8);
    word = word >> at_ % 8 & ((std::uint64_t{1} << bits) - 1);
    at_ += bits;
    return word;
  }

 private:
  const std::uint8_t* in_;
  std::size_t bytes_, at_ = 0;
};

}  // namespace
