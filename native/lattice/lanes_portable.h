// Residues as 64-bit integers, one at a time: runs on any processor.
#pragma once

#include "ring.h"

namespace {

using namespace lattice;

struct Lanes {
  using Word = u64;  // in memory
  using V = u64;     // in a register
  static constexpr std::size_t kCount = 1, kLogCount = 0;
  static constexpr const char* kName = "portable";

  Prime prime;  // a copy that stores to residues cannot change, so it stays in registers
  u64 p, p2;
  explicit Lanes(const Prime& of) : prime(of), p(of.p), p2(2 * of.p) {}

  // A constant factor with its quotient by p (Shoup): the product needs no division.
  struct Factor {
    V value, quotient;
  };
  static u64 quotient(u64 value, const Prime& prime) { return static_cast<u64>((static_cast<u128>(value) << 64) / prime.p); }
  static Word word(u64 value, const Prime&) { return value; }
  static u64 number(Word word, const Prime&) { return word; }
  static Word negated(Word word, const Prime& prime) { return word ? prime.p - word : 0; }
  static Word small(std::int64_t value, const Prime& prime) {  // a number of magnitude below p, without a branch
    return static_cast<u64>(value) + (prime.p & static_cast<u64>(value >> 63));
  }
  static u64 prepared(u64 value, const Prime&) { return value; }  // for a factor of `Sum`

  static V load(const Word* from) { return *from; }
  static void store(Word* to, V x) { *to = x; }
  static V gather(const Word* from, const std::uint32_t* at) { return from[*at]; }
  static Factor factor(const Word* value, const Word* quotient) { return {*value, *quotient}; }
  static Factor factors(const Word* value, const Word* quotient) { return {*value, *quotient}; }

  V times(V x, Factor w) const {  // below 2p, for any x
    const u64 q = static_cast<u64>(static_cast<u128>(x) * w.quotient >> 64);
    return x * w.value - q * p;
  }
  // Forward: values stay below 4p. Inverse: below 2p.
  template <bool kRelax>
  void forward(V& x, V& y, Factor w) const {
    const V u = x >= p2 ? x - p2 : x, t = times(y, w);
    x = u + t, y = u + p2 - t;
  }
  void inverse(V& x, V& y, Factor w) const {
    const V sum = x + y, difference = x + p2 - y;
    x = sum >= p2 ? sum - p2 : sum, y = times(difference, w);
  }
  V difference_times(V x, V y, Factor w) const { return times(x + p2 - y, w); }
  V finish(V x) const { return reduce(x, prime); }

  static void pairs(V& even, V& odd) { (void)even, (void)odd; }
  static void transpose(V*) {}

  Word add_word(Word a, Word b) const { return add(a, b, prime); }

  // A sum of products, one factor of each prepared.
  struct Sum {
    u128 value = 0;
  };
  static void accumulate(Sum& sum, V a, V b) { sum.value += static_cast<u128>(a) * b; }
  V settle(V carried, const Sum& sum) const { return add(carried, reduce_wide(sum.value, prime), prime); }
  V settled(V x) const { return x; }

  // (x mod p, y mod another prime) of one number z: z - centred(z mod other), modulo p; below 4p.
  struct Other {
    u64 p, half;
  };
  static Other other(const Prime& prime) { return {prime.p, prime.p / 2}; }
  static V reduced_other(V y, Other of) { return y >= of.p ? y - of.p : y; }
  V less_centred(V x, V y, Other of) const { return x + p - y + (y > of.half ? of.p : 0); }
  V centred(V y, Other of) const { return y > of.half ? y + p - of.p : y; }  // centred(y mod other), modulo p
  static V plus(V a, V b) { return a + b; }
  V minus(V a, V b) const { return a + p - b; }
};

}  // namespace
