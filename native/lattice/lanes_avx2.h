// Residues as doubles around zero, four at a time, multiplied exactly with AVX2's fused multiply-add.
//
// Integers below 2^53 are exact in a double. A residue has a magnitude of at most p/2; a product by a constant factor
// is reduced below p, so that three layers of a transform can pass before sums are reduced: (0.5 + 3) p < 2^52.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "ring.h"

namespace {

using namespace lattice;

struct Lanes {
  using Word = double;
  using V = __m256d;
  static constexpr std::size_t kCount = 4, kLogCount = 2;
  static constexpr const char* kName = "avx2";
  static constexpr double kTwo52 = 4503599627370496.0;
  static constexpr u64 kTwo52Bits = 0x4330000000000000ull;

  double scalar_p, scalar_inverse;
  V p, inverse_p;
  explicit Lanes(const Prime& prime)
      : scalar_p(static_cast<double>(prime.p)),
        scalar_inverse(1.0 / scalar_p),
        p(_mm256_set1_pd(scalar_p)),
        inverse_p(_mm256_set1_pd(scalar_inverse)) {}

  struct Factor {
    V value, quotient;
  };
  static double quotient(u64 value, const Prime& prime) { return word(value, prime) / static_cast<double>(prime.p); }
  // A number below 2^52 in the mantissa of 2^52 + number: a conversion that compilers vectorise.
  static Word word(u64 value, const Prime& prime) {
    const u64 bits = value | kTwo52Bits;
    double number;
    std::memcpy(&number, &bits, sizeof number);
    number -= kTwo52;
    return number > static_cast<double>(prime.p / 2) ? number - static_cast<double>(prime.p) : number;
  }
  static u64 number(Word word, const Prime& prime) {
    const double shifted = (word < 0.0 ? word + static_cast<double>(prime.p) : word) + kTwo52;
    u64 bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    return bits ^ kTwo52Bits;
  }
  static Word negated(Word word, const Prime&) { return -word; }
  static Word small(std::int64_t value, const Prime&) { return static_cast<double>(value); }  // of magnitude below p / 2
  static u64 prepared(u64 value, const Prime&) { return value; }

  static V load(const Word* from) { return _mm256_load_pd(from); }
  static void store(Word* to, V x) { _mm256_store_pd(to, x); }
  static V gather(const Word* from, const std::uint32_t* at) {  // four loads: faster than the instruction on many processors
    return _mm256_set_pd(from[at[3]], from[at[2]], from[at[1]], from[at[0]]);
  }
  static Factor factor(const Word* value, const Word* quotient) {
    return {_mm256_broadcast_sd(value), _mm256_broadcast_sd(quotient)};
  }
  static Factor factors(const Word* value, const Word* quotient) {
    return {_mm256_loadu_pd(value), _mm256_loadu_pd(quotient)};
  }

  static V nearest(V x) { return _mm256_round_pd(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  V times(V x, Factor w) const {
    const V high = _mm256_mul_pd(x, w.value), low = _mm256_fmsub_pd(x, w.value, high);
    return _mm256_add_pd(_mm256_fnmadd_pd(nearest(_mm256_mul_pd(x, w.quotient)), p, high), low);
  }
  V product(V a, V b) const {
    const V high = _mm256_mul_pd(a, b), low = _mm256_fmsub_pd(a, b, high);
    return _mm256_add_pd(_mm256_fnmadd_pd(nearest(_mm256_mul_pd(high, inverse_p)), p, high), low);
  }
  V finish(V x) const { return _mm256_fnmadd_pd(nearest(_mm256_mul_pd(x, inverse_p)), p, x); }

  template <bool kRelax>
  void forward(V& x, V& y, Factor w) const {
    const V u = kRelax ? finish(x) : x, t = times(y, w);
    x = _mm256_add_pd(u, t), y = _mm256_sub_pd(u, t);
  }
  void inverse(V& x, V& y, Factor w) const {
    const V sum = _mm256_add_pd(x, y), difference = _mm256_sub_pd(x, y);
    x = finish(sum), y = times(difference, w);
  }
  V difference_times(V x, V y, Factor w) const { return times(_mm256_sub_pd(x, y), w); }

  static void pairs(V& even, V& odd) {  // of eight in a row: those at even positions, those at odd
    const V low = _mm256_permute2f128_pd(even, odd, 0x20), high = _mm256_permute2f128_pd(even, odd, 0x31);
    even = _mm256_unpacklo_pd(low, high), odd = _mm256_unpackhi_pd(low, high);
  }
  static void transpose(V* r) {
    const V a = _mm256_unpacklo_pd(r[0], r[1]), b = _mm256_unpackhi_pd(r[0], r[1]);
    const V c = _mm256_unpacklo_pd(r[2], r[3]), d = _mm256_unpackhi_pd(r[2], r[3]);
    r[0] = _mm256_permute2f128_pd(a, c, 0x20), r[1] = _mm256_permute2f128_pd(b, d, 0x20);
    r[2] = _mm256_permute2f128_pd(a, c, 0x31), r[3] = _mm256_permute2f128_pd(b, d, 0x31);
  }

  Word add_word(Word a, Word b) const {
    const double sum = a + b;
    return sum > scalar_p / 2 ? sum - scalar_p : sum < -scalar_p / 2 ? sum + scalar_p : sum;
  }

  struct Sum {
    V value = _mm256_setzero_pd();
  };
  void accumulate(Sum& sum, V a, V b) const { sum.value = _mm256_add_pd(sum.value, product(a, b)); }
  V settle(V carried, const Sum& sum) const { return finish(_mm256_add_pd(carried, sum.value)); }
  V settled(V x) const { return x; }

  struct Other {
    V p, inverse;
  };
  static Other other(const Prime& prime) {
    return {_mm256_set1_pd(static_cast<double>(prime.p)), _mm256_set1_pd(1.0 / static_cast<double>(prime.p))};
  }
  static V reduced_other(V y, Other of) { return _mm256_fnmadd_pd(nearest(_mm256_mul_pd(y, of.inverse)), of.p, y); }
  V less_centred(V x, V y, Other) const { return _mm256_sub_pd(x, y); }
  V centred(V y, Other) const { return finish(y); }
  static V plus(V a, V b) { return _mm256_add_pd(a, b); }
  static V minus(V a, V b) { return _mm256_sub_pd(a, b); }
};

}  // namespace
