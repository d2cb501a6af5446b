// The engine interface of reusable masks, one polynomial or slot at a time; the caller distributes the calls over
// threads.
//
// The job fixes uniform polynomials: number 0 hides masks, number k + 1 belongs to the rows k N to (k + 1) N. A vector
// of values has a secret s of its own for each of its two families. Its ciphertext is dense: row i of a polynomial is
// coefficient i of -a s + e, rounded to `bits` bits (modulo 2^bits), plus delta times the value. A slot's sum is the
// sum of its rows' coefficients. The mask of a slot, which does not depend on the vector, is the inner product's other
// side: coefficients h with sum(-a s) + <h, s> = 0 up to noise.
#pragma once

#include "ring.h"

namespace lattice {

constexpr std::size_t kPair = 2;  // families: g and h
constexpr unsigned kLimbBits = 48;  // of the lower half of a dense value
constexpr std::size_t kLeastWidth = 8, kMostWidth = 12;  // bytes of a dense value
constexpr std::size_t kMostMaskBytes = 7;

struct DenseJob {
  const void *a, *secret;         // two polynomials each, the secret as made by `prepare_secret`
  const std::int32_t* values;     // of every second number; null: zeros
  std::size_t count;              // coefficients wanted
  unsigned log_delta, bits;
  const std::uint8_t* noise_key;
  u64 noise_stream;
  std::uint8_t* out;              // a value's bytes, lowest first, every `stride` bytes
  std::size_t stride;
  void* scratch;                  // 4 polynomials
};

struct MaskJob {
  const void* a;                  // all polynomials of the job
  const std::uint16_t* bins;      // of one column
  std::uint16_t bin;
  std::size_t rows;
  const std::uint8_t* noise_key;
  u64 noise_stream;
  std::size_t bytes;              // of a coefficient
  std::uint8_t* mask;             // bytes x N: the lowest byte of all coefficients, then the next
  std::int8_t* hiding;            // N: what to multiply the vector's key part by
  void* scratch;                  // 5 polynomials
};

struct MaskEngine {
  const char* name;
  bool (*supported)();
  void (*expand)(const std::uint8_t* seed, u64 number, void* out);
  void (*prepare_secret)(const std::int8_t* ternary, void* out);
  void (*encrypt)(const DenseJob& job);
  void (*make_mask)(const MaskJob& job);
  // Adds rows of `2 width` bytes to the slots of their bins: slots x families x (low, high) limbs.
  void (*add_narrow)(const std::uint8_t* dense, std::size_t width, const std::uint8_t* bins, const std::int32_t* start,
                     std::size_t features, std::size_t rows, u64* out, std::size_t slots);
  void (*add_wide)(const std::uint8_t* dense, std::size_t width, const std::uint16_t* bins, const std::int32_t* start,
                   std::size_t features, std::size_t rows, u64* out, std::size_t slots);
  // Inner product of N small numbers: magnitudes below 2^15, and 1.
  std::int32_t (*dot)(const std::int16_t* a, const std::int16_t* b);
};

extern const MaskEngine kMaskPortable, kMaskAvx2, kMaskIfma;

}  // namespace lattice
