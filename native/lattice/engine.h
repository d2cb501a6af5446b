// The interface of an engine, one polynomial or tile at a time; the caller distributes the calls over threads.
//
// A node's rows are divided into runs of `run` rows; run c becomes the polynomial sum_j value[c run + j] X^j, encrypted
// as (-a s + e + delta m, a) with a drawn from a public seed, the same a for all families (g, h) under separate secrets.
// A tile is `N / run` consecutive slots (bins). Its polynomial for run c is the sum over the run's rows j and the slots b
// of the tile that row j falls in of X^(b run + run-1 - j): the product has the sum over rows in slot b at coefficient
// (b+1) run - 1.
#pragma once

#include "ring.h"

namespace lattice {

constexpr std::size_t kLeastRun = 64;                     // so at most 64 slots in a tile
constexpr std::size_t kMostSlots = kN / kLeastRun;
constexpr std::size_t kRunsAtOnce = 8;                    // runs whose products are summed before reduction
constexpr std::size_t kPolyWords = kN;                    // 8-byte words of a polynomial modulo one prime

struct TileJob {
  const void* ciphertext;           // of the node: runs x primes x (families + 1) polynomials, as made by `load`
  const void* public_key;           // primes x (families + 1) polynomials, as made by `prepare_public`
  std::size_t families, runs, run, rows;
  const std::int32_t* slot;         // features x rows: the slot of a row
  const std::int32_t* feature_start;  // first slot of each feature
  const std::int32_t* feature_width;
  std::size_t features, slots;
  std::size_t first_tile, tiles;    // those of this job
  unsigned log_flood, log_delta;
  const std::int64_t* added;        // families x slots: added to the sums; null for nothing
  const std::uint8_t* noise_key;    // of the level; `noise_stream` + tile is the stream of a tile
  u64 noise_stream;
  u64* sums;                        // families x slots, modulo the first prime
  std::uint8_t* masks;              // tiles x kPolyBytes
  void* scratch;                    // `tile_scratch(families, tiles)` words
};

struct Engine {
  const char* name;
  bool (*supported)();
  // Secret: ternary coefficients to 2 polynomials.
  void (*prepare_secret)(const std::int8_t* ternary, void* out);
  // -a s + e for one family, packed; `scratch` 4 polynomials, here and below.
  void (*public_part)(const void* secret, const std::uint8_t* seed, const std::uint8_t* noise_key, u64 stream,
                      std::uint8_t* out, void* scratch);
  // False if a residue is out of range.
  bool (*prepare_public)(const std::uint8_t* seed, const std::uint8_t* packed, std::size_t families, void* out);
  // values: count x families. Secrets: families x 2 polynomials. Out: families x 2 x kPolyBytes.
  void (*encrypt)(const void* secrets, std::size_t families, const std::int32_t* values, std::size_t count,
                  unsigned log_delta, const std::uint8_t* seed, u64 run_number, const std::uint8_t* noise_key,
                  std::uint8_t* out, void* scratch);
  bool (*load)(const std::uint8_t* packed, std::size_t families, const std::uint8_t* seed, u64 run_number, void* out);
  std::size_t (*tile_scratch)(std::size_t families, std::size_t tiles);
  void (*sum_tiles)(const TileJob& job);
  // sums: families x stride, of which `count` from `sums` on belong to this tile; out: count x families, interleaved.
  bool (*decrypt)(const void* secrets, std::size_t families, const std::uint8_t* mask, const u64* sums,
                  std::size_t stride, std::size_t count, std::size_t run, unsigned log_delta, std::int64_t* out,
                  void* scratch);
  // Residues of small coefficients, in wire order: for tests.
  void (*transform)(const std::int64_t* coefficients, std::size_t prime, u64* out);
};

extern const Engine kPortable, kAvx2, kIfma;

}  // namespace lattice
