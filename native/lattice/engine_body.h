// An engine over `Lanes`, which the including file defines. Everything here is local to that file: it is compiled for
// one kind of processor, and no function may be called on another.
#pragma once

#include <cstring>

#include "randomness.h"
#include "engine.h"
#include "transform.h"

namespace {

using Word = Lanes::Word;
using V = Lanes::V;
constexpr std::size_t kL = Lanes::kCount;
using Transform = TransformOf<TrainingRing>;

const Transform& transform_of(std::size_t prime) {
  static const Transform made[kPrimes] = {Transform(0), Transform(1)};
  return made[prime];
}

// --- bytes --------------------------------------------------------------------------------------------------

// Four residues of 50 bits are 25 bytes.
void pack4(const u64* v, std::uint8_t* out) {
  const u64 words[3] = {v[0] | v[1] << 50, v[1] >> 14 | v[2] << 36, v[2] >> 28 | v[3] << 22};
  std::memcpy(out, words, sizeof words);
  out[24] = static_cast<std::uint8_t>(v[3] >> 42);
}

void unpack4(const std::uint8_t* in, u64* v) {
  u64 words[3];
  std::memcpy(words, in, sizeof words);
  v[0] = words[0] & kResidueMask;
  v[1] = (words[0] >> 50 | words[1] << 14) & kResidueMask;
  v[2] = (words[1] >> 36 | words[2] << 28) & kResidueMask;
  v[3] = (words[2] >> 22 | static_cast<u64>(in[24]) << 42) & kResidueMask;
}

// The functions on single polynomials serve rings of any degree; `Of` is the ring's transform.
template <bool kTransformed, class Of = Transform>
void pack(const Word* a, const Prime& prime, std::uint8_t* out) {
  for (std::size_t i = 0; i < Of::kN; i += 4, out += 25) {
    u64 v[4];
    for (std::size_t k = 0; k < 4; ++k) v[k] = Lanes::number(a[kTransformed ? Of::place(i + k) : i + k], prime);
    pack4(v, out);
  }
}

template <bool kTransformed, class Of = Transform>
bool unpack(const std::uint8_t* in, const Prime& prime, Word* out) {
  bool fits = true;
  for (std::size_t i = 0; i < Of::kN; i += 4, in += 25) {
    u64 v[4];
    unpack4(in, v);
    for (std::size_t k = 0; k < 4; ++k) {
      fits &= v[k] < prime.p;
      out[kTransformed ? Of::place(i + k) : i + k] = Lanes::word(v[k], prime);
    }
  }
  return fits;
}

// --- randomness ---------------------------------------------------------------------------------------------

// Uniform residues, transformed: 50 bits of each word, words that are too large skipped.
template <class Of = Transform>
void uniform(const std::uint8_t* seed, u64 stream, const Prime& prime, Word* out) {
  alignas(64) u64 words[Of::kN];
  Chacha source(seed, stream);
  source.fill(words, Of::kN);
  bool skipped = false;
  for (std::size_t i = 0; i < Of::kN; ++i) {
    const u64 x = words[i] & kResidueMask;
    skipped |= x >= prime.p;
    out[Of::place(i)] = Lanes::word(x, prime);
  }
  if (!skipped) return;
  for (std::size_t i = 0, from = 0; i < Of::kN;) {
    const u64 x = (from < Of::kN ? words[from] : source.next()) & kResidueMask;
    ++from;
    if (x < prime.p) out[Of::place(i++)] = Lanes::word(x, prime);
  }
}

std::int64_t centred_binomial(u64 word) {
  constexpr u64 kMask = (u64{1} << kErrorBits) - 1;
  return static_cast<std::int64_t>(__builtin_popcountll(word & kMask)) -
         static_cast<std::int64_t>(__builtin_popcountll(word >> kErrorBits & kMask));
}

// Small errors, as residues modulo both primes.
void errors(Chacha& source, Word* first, Word* second) {
  alignas(64) u64 words[kN];
  source.fill(words, kN);
  for (std::size_t i = 0; i < kN; ++i) {
    const std::int64_t e = centred_binomial(words[i]);
    first[i] = Lanes::small(e, kPrime[0]), second[i] = Lanes::small(e, kPrime[1]);
  }
}

// A polynomial with small coefficients.
template <std::size_t kDegree>
struct SmallOf {
  std::int8_t of[kDegree];

  void errors(Chacha& source) {
    for (std::size_t i = 0; i < kDegree; i += Chacha::kWords) {
      u64 words[Chacha::kWords];
      source.fill(words, Chacha::kWords);
      for (std::size_t k = 0; k < Chacha::kWords; ++k) of[i + k] = static_cast<std::int8_t>(centred_binomial(words[k]));
    }
  }
  void ternaries(Chacha& source) { ternary(source, of, kDegree); }

  void words(const Prime& prime, Word* out) const {
    for (std::size_t i = 0; i < kDegree; ++i) out[i] = Lanes::small(of[i], prime);
  }
  template <class Of>
  void transformed(const Of& transform, Word* out) const {
    words(transform.prime, out);
    transform.forward(out, 0);
  }
};

Word prepared_word(u64 value, const Prime& prime) { return Lanes::word(Lanes::prepared(value, prime), prime); }

// --- polynomials --------------------------------------------------------------------------------------------

// out = a * prepared + carried (if any). The result is below p.
template <class Of = Transform>
void multiply_add(const Lanes lanes, const Word* a, const Word* prepared, const Word* carried, Word* out) {
  alignas(64) static const Word kNothing[kL] = {};
  for (std::size_t i = 0; i < Of::kN; i += kL) {
    typename Lanes::Sum sum;
    lanes.accumulate(sum, Lanes::load(a + i), Lanes::load(prepared + i));
    Lanes::store(out + i, lanes.settled(lanes.settle(Lanes::load(carried ? carried + i : kNothing), sum)));
  }
}

void prepare_secret(const std::int8_t* s, void* out) {
  Word* secret = static_cast<Word*>(out);
  for (std::size_t j = 0; j < kPrimes; ++j, secret += kN) {
    for (std::size_t i = 0; i < kN; ++i) secret[i] = Lanes::small(s[i], kPrime[j]);
    transform_of(j).forward(secret, 0);
    for (std::size_t i = 0; i < kN; ++i)
      secret[i] = Lanes::word(Lanes::prepared(Lanes::number(secret[i], kPrime[j]), kPrime[j]), kPrime[j]);
  }
}

// -a, for computing m - a s in all families.
template <class Of = Transform>
void negated_uniform(const std::uint8_t* seed, u64 stream, const Prime& prime, Word* out) {
  uniform<Of>(seed, stream, prime, out);
  for (std::size_t i = 0; i < Of::kN; ++i) out[i] = Lanes::negated(out[i], prime);
}

void public_part(const void* secret, const std::uint8_t* seed, const std::uint8_t* noise_key, u64 stream,
                 std::uint8_t* out, void* scratch) {
  Word *e = static_cast<Word*>(scratch), *minus_a = e + 2 * kN;
  Chacha source(noise_key, stream);
  errors(source, e, e + kN);
  for (std::size_t j = 0; j < kPrimes; ++j) {
    Word* part = e + j * kN;
    transform_of(j).forward(part, 0);
    negated_uniform(seed, j, kPrime[j], minus_a);
    multiply_add(transform_of(j).lanes, minus_a, static_cast<const Word*>(secret) + j * kN, part, part);
    pack<true>(part, kPrime[j], out + j * kPolyBytes);
  }
}

bool prepare_public(const std::uint8_t* seed, const std::uint8_t* packed, std::size_t families, void* out) {
  Word* key = static_cast<Word*>(out);
  bool fits = true;
  for (std::size_t j = 0; j < kPrimes; ++j)
    for (std::size_t f = 0; f <= families; ++f, key += kN) {
      if (f == families)
        uniform(seed, j, kPrime[j], key);  // expanded here: an owner that chose it could disable the masking
      else
        fits &= unpack<true>(packed + (f * kPrimes + j) * kPolyBytes, kPrime[j], key);
      for (std::size_t i = 0; i < kN; ++i)
        key[i] = Lanes::word(Lanes::prepared(Lanes::number(key[i], kPrime[j]), kPrime[j]), kPrime[j]);
    }
  return fits;
}

void encrypt(const void* secrets, std::size_t families, const std::int32_t* values, std::size_t count,
             unsigned log_delta, const std::uint8_t* seed, u64 run_number, const std::uint8_t* noise_key,
             std::uint8_t* out, void* scratch) {
  Word *message = static_cast<Word*>(scratch), *minus_a = message + 2 * kN;  // two polynomials each
  for (std::size_t j = 0; j < kPrimes; ++j) negated_uniform(seed, run_number * kPrimes + j, kPrime[j], minus_a + j * kN);
  for (std::size_t f = 0; f < families; ++f) {
    Chacha source(noise_key, run_number * families + f);
    errors(source, message, message + kN);
    for (std::size_t j = 0; j < kPrimes; ++j) {
      const Prime& prime = kPrime[j];
      const Transform& transform = transform_of(j);
      Word* part = message + j * kN;
      const u64 delta = power(2, log_delta, prime);
      for (std::size_t i = 0; i < count; ++i) {
        const u64 scaled = multiply(residue(values[i * families + f], prime), delta, prime);
        part[i] = transform.lanes.add_word(part[i], Lanes::word(scaled, prime));
      }
      transform.forward(part, 0);
      const Word* secret = static_cast<const Word*>(secrets) + (f * kPrimes + j) * kN;
      multiply_add(transform.lanes, minus_a + j * kN, secret, part, part);
      pack<true>(part, prime, out + (f * kPrimes + j) * kPolyBytes);
    }
  }
}

bool load(const std::uint8_t* packed, std::size_t families, const std::uint8_t* seed, u64 run_number, void* out) {
  Word* polynomial = static_cast<Word*>(out);
  bool fits = true;
  for (std::size_t j = 0; j < kPrimes; ++j)
    for (std::size_t f = 0; f <= families; ++f, polynomial += kN) {
      if (f == families)
        uniform(seed, run_number * kPrimes + j, kPrime[j], polynomial);
      else
        fits &= unpack<true>(packed + (f * kPrimes + j) * kPolyBytes, kPrime[j], polynomial);
    }
  return fits;
}

// --- tiles --------------------------------------------------------------------------------------------------

// The state of a tile's polynomial after its first layers, for a single row in slot b of the tile: one value for each
// of the tile's blocks of coefficients. With it, these layers cost a few additions instead of butterflies.
struct FirstLayers {
  Word* at[kLogN + 1][kPrimes];  // by the logarithm of the slots in a tile
  Word words[kPrimes * (4 * kMostSlots * kMostSlots / 3 + 1)];

  FirstLayers() {
    Word* next = words;
    for (std::size_t log = 0; (std::size_t{1} << log) <= kMostSlots; ++log)
      for (std::size_t j = 0; j < kPrimes; ++j) {
        const std::size_t slots = std::size_t{1} << log;
        at[log][j] = next;
        for (std::size_t b = 0; b < slots; ++b, next += slots) make(b, slots, j, next);
      }
  }

  static void make(std::size_t b, std::size_t slots, std::size_t j, Word* out) {
    const Prime& prime = kPrime[j];
    u64 x[kMostSlots] = {};
    x[b] = 1;
    for (std::size_t parts = 1; parts < slots; parts *= 2) {
      const std::size_t half = slots / (2 * parts);
      for (std::size_t i = 0; i < parts; ++i)
        for (std::size_t k = 2 * i * half; k < (2 * i + 1) * half; ++k) {
          const u64 u = x[k], v = multiply(x[k + half], TrainingRing::roots(j).forward[parts + i], prime);
          x[k] = add(u, v, prime), x[k + half] = subtract(u, v, prime);
        }
    }
    for (std::size_t k = 0; k < slots; ++k) out[k] = Lanes::word(Lanes::prepared(x[k], prime), prime);
  }
};

const FirstLayers& first_layers() {
  static const FirstLayers made;
  return made;
}

// The transformed polynomial of a tile for the rows [begin, end) of a run.
void tile_polynomial(const TileJob& job, std::size_t first_slot, std::size_t begin, std::size_t end, std::size_t j,
                     std::size_t log_slots, Word* out) {
  const std::size_t in_tile = std::size_t{1} << log_slots, run = job.run;
  const Word* table = first_layers().at[log_slots][j];
  const Transform& transform = transform_of(j);
  std::memset(out, 0, kN * sizeof(Word));
  const auto low = static_cast<std::int32_t>(first_slot), high = static_cast<std::int32_t>(first_slot + in_tile);
  bool first = true;
  for (std::size_t f = 0; f < job.features; ++f) {
    if (job.feature_start[f] >= high || job.feature_start[f] + job.feature_width[f] <= low) continue;
    const std::int32_t* slot = job.slot + f * job.rows + begin;
    const std::size_t count = end - begin;
    std::uint16_t hit[kN];
    std::size_t hits = 0;
    for (std::size_t i = 0; i < count; ++i) {
      hit[hits] = static_cast<std::uint16_t>(i);
      hits += static_cast<std::uint32_t>(slot[i] - low) < in_tile;
    }
    for (std::size_t h = 0; h < hits; ++h) {
      Word* x = out + run - 1 - hit[h];
      const Word* column = table + static_cast<std::size_t>(slot[hit[h]] - low) * in_tile;
      if (first)
        for (std::size_t k = 0; k < in_tile; ++k) x[k * run] = column[k];
      else
        for (std::size_t k = 0; k < in_tile; ++k) x[k * run] = transform.lanes.add_word(x[k * run], column[k]);
    }
    first = false;
  }
  transform.forward(out, log_slots);
}

std::size_t tile_scratch(std::size_t families, std::size_t tiles) {
  return ((families + 1) * kPrimes * tiles + kRunsAtOnce + 5) * kN;
}

// One more family than `kFamilies`: the mask.
template <std::size_t kParts>
void add_products(const Lanes lanes, const Word* tiles, const Word* const* runs, std::size_t count, Word* carried) {
  for (std::size_t i = 0; i < kN; i += kL) {
    typename Lanes::Sum sum[kParts];
    for (std::size_t r = 0; r < count; ++r) {
      const V tile = Lanes::load(tiles + r * kN + i);
      for (std::size_t f = 0; f < kParts; ++f) lanes.accumulate(sum[f], tile, Lanes::load(runs[r] + f * kN + i));
    }
    for (std::size_t f = 0; f < kParts; ++f)
      Lanes::store(carried + f * kN + i, lanes.settle(Lanes::load(carried + f * kN + i), sum[f]));
  }
}

void add_all_products(const Lanes& lanes, const Word* tiles, const Word* const* runs, std::size_t count,
                      std::size_t parts, Word* carried) {
  if (parts == 3) return add_products<3>(lanes, tiles, runs, count, carried);
  const Word* at[kRunsAtOnce];
  for (std::size_t f = 0; f < parts; ++f) {
    for (std::size_t r = 0; r < count; ++r) at[r] = runs[r] + f * kN;
    add_products<1>(lanes, tiles, at, count, carried + f * kN);
  }
}

// Modulus switching: the integer nearest to z / p1, modulo p0, from z modulo both primes.
struct Switch {
  Word value[2];
  typename Lanes::Other other;
  u64 inverse;
  Switch() : other(Lanes::other(kPrime[1])) {
    inverse = power(kPrime[1].p, kPrime[0].p - 2, kPrime[0]);
    value[0] = Lanes::word(inverse, kPrime[0]), value[1] = Lanes::quotient(inverse, kPrime[0]);
  }
  u64 number(u64 x, u64 y) const {
    const Prime& p0 = kPrime[0];
    const u64 centred = y > kPrime[1].p / 2 ? subtract(reduce(y, p0), kPrime[1].p, p0) : y;
    return multiply(subtract(x, centred, p0), inverse, p0);
  }
};

void finish_tile(const TileJob& job, std::size_t tile, Word* sums, Word* scratch) {
  const Switch to_first;
  const std::size_t parts = job.families + 1, in_tile = kN / job.run;
  Chacha source(job.noise_key, job.noise_stream + tile);
  Word *error = scratch, *hiding = scratch + 2 * kN;
  errors(source, error, error + kN);
  std::int8_t u[kN];
  ternary(source, u);
  // Re-randomise: add a public-key encryption of zero, so that the mask reveals nothing about the tile.
  const Word* key = static_cast<const Word*>(job.public_key);
  for (std::size_t j = 0; j < kPrimes; ++j) {
    for (std::size_t i = 0; i < kN; ++i) hiding[i] = Lanes::small(u[i], kPrime[j]);
    transform_of(j).forward(hiding, 0);
    for (std::size_t f = 0; f < parts; ++f) {
      Word* sum = sums + (j * parts + f) * kN;
      multiply_add(transform_of(j).lanes, hiding, key + (j * parts + f) * kN, sum, sum);
    }
  }
  // Add `added` at the scale of the messages, modulo q, so that only the new sum appears; then flood the result
  // coefficients, so that their noise reveals nothing about the tile.
  const u64 delta[kPrimes] = {power(2, job.log_delta, kPrime[0]), power(2, job.log_delta, kPrime[1])};
  const std::size_t first_slot = tile * in_tile;
  const std::size_t wanted = job.slots - first_slot < in_tile ? job.slots - first_slot : in_tile;
  for (std::size_t f = 0; f < job.families; ++f) {
    u64 at[kPrimes][kN / kLeastRun];
    for (std::size_t j = 0; j < kPrimes; ++j)
      transform_of(j).inverse_at(sums + (j * parts + f) * kN, job.run, at[j]);
    for (std::size_t b = 0; b < wanted; ++b) {
      const u64 bits = source.next() >> (63 - job.log_flood);  // uniform in [-2^log_flood, 2^log_flood)
      const auto flood = static_cast<std::int64_t>(bits) - (std::int64_t{1} << job.log_flood);
      u64 x[kPrimes];
      for (std::size_t j = 0; j < kPrimes; ++j) {
        x[j] = add(at[j][b], residue(flood, kPrime[j]), kPrime[j]);
        if (job.added) {
          const u64 value = residue(job.added[f * job.slots + first_slot + b], kPrime[j]);
          x[j] = add(x[j], multiply(value, delta[j], kPrime[j]), kPrime[j]);
        }
      }
      job.sums[f * job.slots + first_slot + b] = to_first.number(x[0], x[1]);
    }
  }
  Word *x = sums + job.families * kN, *y = sums + (parts + job.families) * kN;
  transform_of(0).inverse(x);
  transform_of(1).inverse(y);
  const Lanes lanes = transform_of(0).lanes;
  const typename Lanes::Factor scale = Lanes::factor(&to_first.value[0], &to_first.value[1]);
  for (std::size_t i = 0; i < kN; i += kL) {
    const V first = lanes.finish(Lanes::plus(Lanes::load(x + i), Lanes::load(error + i)));
    const V second = Lanes::reduced_other(Lanes::plus(Lanes::load(y + i), Lanes::load(error + kN + i)), to_first.other);
    Lanes::store(x + i, lanes.finish(lanes.times(lanes.less_centred(first, second, to_first.other), scale)));
  }
  pack<false>(x, kPrime[0], job.masks + (tile - job.first_tile) * kPolyBytes);
}

void sum_tiles(const TileJob& job) {
  const std::size_t parts = job.families + 1, in_tile = kN / job.run;
  std::size_t log_slots = 0;
  while ((std::size_t{1} << log_slots) < in_tile) ++log_slots;
  Word* sums = static_cast<Word*>(job.scratch);  // tiles x primes x parts polynomials
  Word* tiles = sums + job.tiles * kPrimes * parts * kN;
  Word* rest = tiles + kRunsAtOnce * kN;
  for (std::size_t i = 0; i < job.tiles * kPrimes * parts * kN; ++i) sums[i] = Word{};
  const Word* ciphertext = static_cast<const Word*>(job.ciphertext);
  // Process a few runs at a time for all tiles of the job, so that the runs stay in the cache.
  for (std::size_t j = 0; j < kPrimes; ++j)
    for (std::size_t first = 0; first < job.runs; first += kRunsAtOnce) {
      const std::size_t count = job.runs - first < kRunsAtOnce ? job.runs - first : kRunsAtOnce;
      const Word* runs[kRunsAtOnce];
      for (std::size_t r = 0; r < count; ++r) runs[r] = ciphertext + ((first + r) * kPrimes + j) * parts * kN;
      for (std::size_t tile = 0; tile < job.tiles; ++tile) {
        for (std::size_t r = 0; r < count; ++r) {
          const std::size_t begin = (first + r) * job.run;
          const std::size_t end = begin + job.run < job.rows ? begin + job.run : job.rows;
          tile_polynomial(job, (job.first_tile + tile) * in_tile, begin, end, j, log_slots, tiles + r * kN);
        }
        add_all_products(transform_of(j).lanes, tiles, runs, count, parts, sums + (tile * kPrimes + j) * parts * kN);
      }
    }
  for (std::size_t tile = 0; tile < job.tiles; ++tile)
    finish_tile(job, job.first_tile + tile, sums + tile * kPrimes * parts * kN, rest);
}

bool decrypt(const void* secrets, std::size_t families, const std::uint8_t* mask, const u64* sums, std::size_t stride,
             std::size_t count, std::size_t run, unsigned log_delta, std::int64_t* out, void* scratch) {
  const Prime& p0 = kPrime[0];
  const Transform& transform = transform_of(0);
  Word *a = static_cast<Word*>(scratch), *product = a + kN;
  bool fits = unpack<false>(mask, p0, a);
  transform.forward(a, 0);
  for (std::size_t f = 0; f < families; ++f) {
    multiply_add(transform.lanes, a, static_cast<const Word*>(secrets) + f * kPrimes * kN, nullptr, product);
    u64 at[kN / kLeastRun];
    transform.inverse_at(product, run, at);
    for (std::size_t b = 0; b < count; ++b) {
      fits &= sums[f * stride + b] < p0.p;
      const u64 x = reduce(sums[f * stride + b] + at[b], p0);
      const __int128 centred = x > p0.p / 2 ? static_cast<__int128>(x) - p0.p : x;
      out[b * families + f] = static_cast<std::int64_t>(
          (centred * static_cast<__int128>(kPrime[1].p) + (static_cast<__int128>(1) << (log_delta - 1))) >> log_delta);
    }
  }
  return fits;
}

void transform_numbers(const std::int64_t* coefficients, std::size_t prime, u64* out) {
  alignas(64) Word a[kN];
  for (std::size_t i = 0; i < kN; ++i) a[i] = Lanes::word(residue(coefficients[i], kPrime[prime]), kPrime[prime]);
  transform_of(prime).forward(a, 0);
  for (std::size_t i = 0; i < kN; ++i) out[i] = Lanes::number(a[Transform::place(i)], kPrime[prime]);
}

}  // namespace

#define LATTICE_ENGINE(supported)                                                                             \
  {Lanes::kName, supported, prepare_secret, public_part,  prepare_public, encrypt,          \
   load,         tile_scratch, sum_tiles,     decrypt,    transform_numbers}
