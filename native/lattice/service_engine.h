// The engine interface of secure inference, one ciphertext at a time; the caller distributes the calls over threads.
//
// A ciphertext (c0, c1) has c0 + c1 s = scale * message + error; a product has a third part, for s^2. Polynomials
// are sent and multiplied as values at the roots; the constant coefficient is the mean of these.
#pragma once

#include "service_ring.h"

namespace lattice {

// A node's shift X^-v and limit, a user's row, and the blinding of their difference: n1, n2 and the sign are in
// `factor` and `offset`, modulo every prime.
struct BlindJob {
  const void* key;                    // b and a, as made by `prepare_key`
  const std::uint8_t *node, *row;     // packed, 4 and 2 polynomials
  const u64 *factor, *offset;         // sign * n1, sign * n2
  const std::uint8_t* noise_key;
  u64 noise_stream;
  std::uint8_t* out;                  // the constant's residues, 8 bytes each, and 2 polynomials
  void* scratch;                      // `kServiceScratch` words
};

constexpr std::size_t kServiceScratch = 10 * ServiceRing::kN;
constexpr std::size_t kConstantBytes = 8 * ServiceRing::kPrimes;
constexpr std::size_t kBlindedBytes = kConstantBytes + 2 * ServiceRing::kPolyBytes;

struct ServiceEngine {
  const char* name;
  bool (*supported)();
  // Ternary coefficients to s and s^2 at the roots: 2 x primes x N words.
  void (*prepare_secret)(const std::int8_t* ternary, void* out);
  // b = -a s + e, packed, with a drawn from the seed.
  void (*public_part)(const void* secret, const std::uint8_t* seed, const std::uint8_t* noise_key, std::uint8_t* out,
                      void* scratch);
  // b and a: 2 x primes x N words. False if a residue is out of range.
  bool (*prepare_key)(const std::uint8_t* seed, const std::uint8_t* packed, void* out);
  // Encrypts the polynomial with scale * values[k] at X^place[k].
  void (*encrypt)(const void* key, const std::int64_t* values, const std::int32_t* place, std::size_t terms,
                  const u64* scale, const std::uint8_t* noise_key, u64 noise_stream, std::uint8_t* out, void* scratch);
  void (*blind)(const BlindJob& job);
  // The constant coefficient of a blinded ciphertext, modulo every prime. False if a residue is out of range.
  bool (*decrypt)(const void* secret, const std::uint8_t* blinded, u64* out, void* scratch);
  // Whether all residues of a packed polynomial are in range.
  bool (*fits)(const std::uint8_t* packed);
};

extern const ServiceEngine kServicePortable, kServiceAvx2, kServiceIfma;

}  // namespace lattice
