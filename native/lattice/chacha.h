// ChaCha20 (RFC 8439), sixteen blocks at a time: one lane of a vector is one block. The key stream of (key, stream) is
// that of key, block counter 0 and a nonce of the stream's number followed by four zero bytes.
#pragma once

#include <cstdint>
#include <cstring>

#include "ring.h"

namespace {

class Chacha {
 public:
  static constexpr std::size_t kWords = 128;  // 64-bit words made at a time

  Chacha(const std::uint8_t* key, std::uint64_t stream) {
    std::memcpy(key_, key, sizeof key_);
    nonce_[0] = static_cast<std::uint32_t>(stream);
    nonce_[1] = static_cast<std::uint32_t>(stream >> 32);
  }

  std::uint64_t next() {
    if (used_ == kWords) refill();
    return words_[used_++];
  }

  // Fills whole refills straight into `out`; `count` is a multiple of kWords and nothing was drawn by halves.
  void fill(std::uint64_t* out, std::size_t count) {
    for (std::size_t done = 0; done < count; done += kWords) make(out + done);
  }

 private:
  typedef std::uint32_t Lanes __attribute__((vector_size(64)));

  static Lanes rotate(Lanes x, int by) { return (x << by) | (x >> (32 - by)); }

  static void quarter(Lanes& a, Lanes& b, Lanes& c, Lanes& d) {
    a += b, d = rotate(d ^ a, 16);
    c += d, b = rotate(b ^ c, 12);
    a += b, d = rotate(d ^ a, 8);
    c += d, b = rotate(b ^ c, 7);
  }

  void make(std::uint64_t* out) {
    static constexpr std::uint32_t kName[4] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
    Lanes start[16], x[16];
    for (int i = 0; i < 4; ++i) start[i] = Lanes{} + kName[i];
    for (int i = 0; i < 8; ++i) start[4 + i] = Lanes{} + key_[i];
    start[12] = Lanes{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} + block_;
    start[13] = Lanes{} + nonce_[0];
    start[14] = Lanes{} + nonce_[1];
    start[15] = Lanes{};
    block_ += 16;
    for (int i = 0; i < 16; ++i) x[i] = start[i];
    for (int round = 0; round < 10; ++round) {
      quarter(x[0], x[4], x[8], x[12]);
      quarter(x[1], x[5], x[9], x[13]);
      quarter(x[2], x[6], x[10], x[14]);
      quarter(x[3], x[7], x[11], x[15]);
      quarter(x[0], x[5], x[10], x[15]);
      quarter(x[1], x[6], x[11], x[12]);
      quarter(x[2], x[7], x[8], x[13]);
      quarter(x[3], x[4], x[9], x[14]);
    }
    std::uint32_t rows[16][16];
    for (int i = 0; i < 16; ++i) {
      const Lanes sum = x[i] + start[i];
      std::memcpy(rows[i], &sum, sizeof sum);
    }
    for (int block = 0; block < 16; ++block)
      for (int word = 0; word < 8; ++word)
        out[8 * block + word] =
            rows[2 * word][block] | static_cast<std::uint64_t>(rows[2 * word + 1][block]) << 32;
  }

  void refill() {
    make(words_);
    used_ = 0;
  }

  std::uint32_t key_[8], nonce_[2], block_ = 0;
  std::uint64_t words_[kWords];
  std::size_t used_ = kWords;
};

// Coefficients of -1, 0 or 1: a byte below 3^5 holds five of them, the lowest digit first; other bytes are skipped.
inline void ternary(Chacha& source, std::int8_t* out) {
  for (std::size_t i = 0; i < lattice::kN;) {
    std::uint64_t word = source.next();
    for (int byte = 0; byte < 8; ++byte, word >>= 8) {
      unsigned digits = word & 255;
      if (digits >= 243) continue;
      for (int digit = 0; digit < 5 && i < lattice::kN; ++digit, digits /= 3)
        out[i++] = static_cast<std::int8_t>(static_cast<int>(digits % 3) - 1);
    }
  }
}

}  // namespace
