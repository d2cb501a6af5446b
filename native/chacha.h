// ChaCha20's block function (RFC 8439), as many blocks at a time as a vector has lanes: one lane is one block.
//
// Always inlined: files compiled for different processors share this source but no function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace chacha {

constexpr std::size_t kState = 16;  // words: constants, key, block counter, nonce

template <class Lanes>
__attribute__((always_inline)) inline void quarter_round(Lanes& a, Lanes& b, Lanes& c, Lanes& d) {
  const auto rotated = [](Lanes x, int bits) __attribute__((always_inline)) { return (x << bits) | (x >> (32 - bits)); };
  a += b, d = rotated(d ^ a, 16);
  c += d, b = rotated(b ^ c, 12);
  a += b, d = rotated(d ^ a, 8);
  c += d, b = rotated(b ^ c, 7);
}

__attribute__((always_inline)) inline void open_state(const std::uint8_t* key, std::uint32_t* state) {
  constexpr std::uint32_t kName[4] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
  std::memcpy(state, kName, sizeof kName);
  std::memcpy(state + 4, key, 32);  // little-endian, like all supported machines
  std::memset(state + 12, 0, 16);
}

// words[i * lanes + b] is word i of block state[12] + b; the counter advances.
template <class Lanes>
__attribute__((always_inline)) inline void next_blocks(std::uint32_t* state, std::uint32_t* words) {
  constexpr std::size_t kLanes = sizeof(Lanes) / 4;
  Lanes start[kState], x[kState];
  for (std::size_t i = 0; i < kState; ++i) start[i] = Lanes{} + state[i];
  for (std::size_t lane = 0; lane < kLanes; ++lane) start[12][lane] += static_cast<std::uint32_t>(lane);
  for (std::size_t i = 0; i < kState; ++i) x[i] = start[i];
  for (int round = 0; round < 10; ++round) {
    quarter_round(x[0], x[4], x[8], x[12]);
    quarter_round(x[1], x[5], x[9], x[13]);
    quarter_round(x[2], x[6], x[10], x[14]);
    quarter_round(x[3], x[7], x[11], x[15]);
    quarter_round(x[0], x[5], x[10], x[15]);
    quarter_round(x[1], x[6], x[11], x[12]);
    quarter_round(x[2], x[7], x[8], x[13]);
    quarter_round(x[3], x[4], x[9], x[14]);
  }
  for (std::size_t i = 0; i < kState; ++i) {
    x[i] += start[i];
    std::memcpy(words + i * kLanes, &x[i], sizeof(Lanes));
  }
  state[12] += static_cast<std::uint32_t>(kLanes);
}

}  // namespace chacha
