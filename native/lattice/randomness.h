// Randomness of the lattice kernel: ChaCha20 key streams, and ternary coefficients from them. The key stream of
// (key, stream) is that of key, block counter 0 and a nonce of the stream's number followed by four zero bytes.
#pragma once

#include <cstdint>

#include "../chacha.h"
#include "ring.h"

namespace {

class Chacha {
 public:
  static constexpr std::size_t kWords = 128;  // 64-bit words generated at a time

  Chacha(const std::uint8_t* key, std::uint64_t stream) {
    chacha::open_state(key, state_);
    state_[13] = static_cast<std::uint32_t>(stream);
    state_[14] = static_cast<std::uint32_t>(stream >> 32);
  }

  std::uint64_t next() {
    if (used_ == kWords) refill();
    return words_[used_++];
  }

  // Fills `out` directly; `count` is a multiple of kWords and the buffer is empty.
  void fill(std::uint64_t* out, std::size_t count) {
    for (std::size_t done = 0; done < count; done += kWords) make(out + done);
  }

 private:
  typedef std::uint32_t Blocks __attribute__((vector_size(64)));  // sixteen

  void make(std::uint64_t* out) {
    std::uint32_t rows[chacha::kState * 16];
    chacha::next_blocks<Blocks>(state_, rows);
    for (std::size_t block = 0; block < 16; ++block)
      for (std::size_t word = 0; word < 8; ++word)
        out[8 * block + word] =
            rows[32 * word + block] | static_cast<std::uint64_t>(rows[32 * word + 16 + block]) << 32;
  }

  void refill() {
    make(words_);
    used_ = 0;
  }

  std::uint32_t state_[chacha::kState];
  std::uint64_t words_[kWords];
  std::size_t used_ = kWords;
};

// Coefficients of -1, 0 or 1: a byte below 3^5 holds five of them, the lowest digit first; other bytes are skipped.
inline void ternary(Chacha& source, std::int8_t* out, std::size_t count = lattice::kN) {
  for (std::size_t i = 0; i < count;) {
    std::uint64_t word = source.next();
    for (int byte = 0; byte < 8; ++byte, word >>= 8) {
      unsigned digits = word & 255;
      if (digits >= 243) continue;
      for (int digit = 0; digit < 5 && i < count; ++digit, digits /= 3)
        out[i++] = static_cast<std::int8_t>(static_cast<int>(digits % 3) - 1);
    }
  }
}

}  // namespace
