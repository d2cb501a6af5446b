// The engine interface of dense ciphertexts, which the receiver expands; one ciphertext or tile at a time.
//
// A dense ciphertext holds a value at every coefficient, encrypted as (-a s + e + delta m, a). `depth` doublings turn it
// into 2^depth ciphertexts (leaves): step i maps c to c + sigma(c) and (c - sigma(c)) X^(-2^i), sigma the automorphism
// X -> X^(N / 2^i + 1), and so separates the exponents by bit i. Leaf k has the values of the coefficients k + 2^depth j
// at X^(2^depth j), times 2^depth, which the encryption divides out. Leaves of different depths share a ciphertext:
// each takes an interval of N >> depth positions; the upper half of an interval holds the odd exponents.
//
// A tile is 2^depth consecutive slots (bins). Its polynomial for a leaf is the sum over the leaf's rows j and the slots b
// of the tile that row j falls in of X^(b - 2^depth j): the product has the sum over rows in slot b at coefficient b.
//
// After a key switch the first halves stay scaled by the special prime; only the answer is divided by it.
#pragma once

#include "expansion_ring.h"

namespace lattice {

constexpr std::size_t kFamilies = 2, kParts = kFamilies + 1;                 // g and h; the mask is the last part
constexpr std::size_t kRowBytes = kFamilies * ExpansionRing::kModuli * kResidueBits / 8;
constexpr std::size_t kMostDepth = 9;
constexpr std::size_t kLeafPolynomials = kParts * ExpansionRing::kPrimes;
constexpr std::size_t kExpandPolynomials = (kMostDepth + 2) * kLeafPolynomials + 10;  // scratch of `expand`
constexpr std::size_t kPublicKeyPolynomials = kParts * ExpansionRing::kModuli;
constexpr std::size_t kStepPolynomials = 2 * kLeafPolynomials;               // a key per digit
constexpr std::size_t kStepBytes = 2 * kFamilies * ExpansionRing::kPrimes * ExpansionRing::kPolyBytes;
constexpr std::size_t kPublicKeyBytes = kFamilies * ExpansionRing::kModuli * ExpansionRing::kPolyBytes;

struct Leaf {
  std::size_t offset, depth;      // its interval of positions
  std::size_t residue;            // row j is at coefficient residue + 2^depth j
  std::size_t rows;
  std::size_t block, first_row;   // its rows in the block
  std::size_t tile, at;           // the first tile of its line, and the place of the block's first slot in the line
};

// Leaves of one ciphertext, in the order of their offsets.
struct ExpandJob {
  const void* keys;               // as made by `prepare_keys`
  const std::uint8_t* seed;
  u64 number;                     // of the ciphertext
  const Leaf* leaves;
  std::size_t count;
  const std::uint8_t* const* packed;     // for each leaf, its rows' residues
  const std::int32_t* const* slot;       // for each leaf, features x `stride`
  const std::size_t* stride;
  std::size_t features, slots;
  std::size_t first_tile;
  void* sums;                     // tiles x parts x primes polynomials, added to
  void* scratch;                  // `kExpandPolynomials`
};

// One tile of several blocks: the families' sums of `count` slots from its start on.
struct FinishJob {
  const void* keys;
  void* sums;                     // parts x primes polynomials; overwritten
  std::size_t count;
  unsigned log_flood, log_delta, bits;
  const std::int64_t* added;      // families x count, or null
  const std::uint8_t* noise_key;
  u64 noise_stream;
  u64* answers;                   // families x count, of `bits` bits
  std::uint8_t* mask;             // N x bits, packed
  void* scratch;                  // 4 polynomials
};

struct ExpansionEngine {
  const char* name;
  bool (*supported)();
  void (*prepare_secret)(const std::int8_t* ternary, void* out);  // to `kPrimes` polynomials
  // -a s + e modulo the first `primes`, packed, and on prime `digit` special * image; without an image, nothing.
  void (*key_part)(const void* secret, const std::int8_t* image, std::size_t digit, std::size_t primes,
                   const std::uint8_t* seed, u64 stream, const std::uint8_t* noise_key, u64 noise_stream,
                   std::uint8_t* out, void* scratch);
  // The public key and the keys of `depth` steps. False if a residue is out of range.
  bool (*prepare_keys)(const std::uint8_t* seed, const std::uint8_t* packed, std::size_t depth, void* out);
  // The residues of the leaves' rows; values: for each leaf rows x families.
  void (*encrypt)(const void* secrets, const Leaf* leaves, std::size_t count, const std::int32_t* const* values,
                  unsigned log_delta, const std::uint8_t* seed, u64 number, const std::uint8_t* noise_key,
                  std::uint8_t* const* out, void* scratch);
  bool (*expand)(const ExpandJob& job);  // false if a residue is out of range
  void (*add)(void* sums, const void* more);  // of a tile
  void (*finish)(const FinishJob& job);
  // answers: families x count; out: count x families.
  void (*decrypt)(const void* secrets, const std::uint8_t* mask, const u64* answers, std::size_t count, unsigned bits,
                  unsigned log_delta, std::int64_t* out, void* scratch);
};

extern const ExpansionEngine kExpansionPortable, kExpansionAvx2, kExpansionIfma;

}  // namespace lattice
