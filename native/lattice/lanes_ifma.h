// Residues as 52-bit integers, eight at a time, multiplied with AVX-512 IFMA.
#pragma once

#include <immintrin.h>

#include "ring.h"

namespace {

using namespace lattice;

struct Lanes {
  using Word = u64;
  using V = __m512i;
  static constexpr std::size_t kCount = 8, kLogCount = 3;
  static constexpr const char* kName = "ifma";

  const Prime& prime;
  V p, p2, minus_p, mask, minus_inverse, fold, residue_mask;
  __m128i residue_bits;
  explicit Lanes(const Prime& of)
      : prime(of),
        p(all(of.p)),
        p2(all(2 * of.p)),
        minus_p(all((u64{1} << 52) - of.p)),
        mask(all((u64{1} << 52) - 1)),
        minus_inverse(all(minus_inverse_of(of.p))),
        fold(all(of.fold)),
        residue_mask(all(of.mask())),
        residue_bits(_mm_cvtsi32_si128(static_cast<int>(of.bits))) {}

  static V all(u64 x) { return _mm512_set1_epi64(static_cast<long long>(x)); }
  static constexpr u64 minus_inverse_of(u64 p) {  // -1/p modulo 2^52, by Newton's iteration
    u64 x = p;
    for (int i = 0; i < 6; ++i) x *= 2 - p * x;
    return (u64{0} - x) & ((u64{1} << 52) - 1);
  }

  struct Factor {
    V value, quotient;
  };
  static u64 quotient(u64 value, const Prime& prime) { return static_cast<u64>((static_cast<u128>(value) << 52) / prime.p); }
  static Word word(u64 value, const Prime&) { return value; }
  static u64 number(Word word, const Prime&) { return word; }
  static Word negated(Word word, const Prime& prime) { return word ? prime.p - word : 0; }
  static Word small(std::int64_t value, const Prime& prime) {  // a number of magnitude below p, without a branch
    return static_cast<u64>(value) + (prime.p & static_cast<u64>(value >> 63));
  }
  // `settle` divides by 2^52 (Montgomery); a prepared factor compensates for it.
  static u64 prepared(u64 value, const Prime& prime) { return multiply(value, reduce(u64{1} << 52, prime), prime); }

  static V load(const Word* from) { return _mm512_load_si512(from); }
  static void store(Word* to, V x) { _mm512_store_si512(to, x); }
  static V gather(const Word* from, const std::uint32_t* at) {
    return _mm512_i32gather_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)), from, 8);
  }
  static Factor factor(const Word* value, const Word* quotient) { return {all(*value), all(*quotient)}; }
  static Factor factors(const Word* value, const Word* quotient) {
    return {_mm512_loadu_si512(value), _mm512_loadu_si512(quotient)};
  }

  static V at_most(V x, V bound) {  // x - bound if x >= bound: otherwise the difference wraps around and is larger
    return _mm512_min_epu64(x, _mm512_sub_epi64(x, bound));
  }
  V times(V x, Factor w) const {  // below 2p, for x below 2^52
    const V zero = _mm512_setzero_si512();
    const V q = _mm512_madd52hi_epu64(zero, x, w.quotient);
    return _mm512_and_si512(_mm512_madd52lo_epu64(_mm512_madd52lo_epu64(zero, x, w.value), q, minus_p), mask);
  }
  template <bool kRelax>
  void forward(V& x, V& y, Factor w) const {  // below 4p, which is below 2^52
    const V u = at_most(x, p2), t = times(y, w);
    x = _mm512_add_epi64(u, t), y = _mm512_sub_epi64(_mm512_add_epi64(u, p2), t);
  }
  void inverse(V& x, V& y, Factor w) const {  // below 2p
    const V sum = _mm512_add_epi64(x, y), difference = _mm512_sub_epi64(_mm512_add_epi64(x, p2), y);
    x = at_most(sum, p2), y = times(difference, w);
  }
  V difference_times(V x, V y, Factor w) const { return times(_mm512_sub_epi64(_mm512_add_epi64(x, p2), y), w); }
  V finish(V x) const { return at_most(at_most(x, p2), p); }

  static void pairs(V& even, V& odd) {
    const V at_even = _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0), at_odd = _mm512_set_epi64(15, 13, 11, 9, 7, 5, 3, 1);
    const V low = even, high = odd;
    even = _mm512_permutex2var_epi64(low, at_even, high), odd = _mm512_permutex2var_epi64(low, at_odd, high);
  }
  static void transpose(V* r) {
    V a[8], b[8];
    for (int i = 0; i < 8; i += 2)
      a[i] = _mm512_unpacklo_epi64(r[i], r[i + 1]), a[i + 1] = _mm512_unpackhi_epi64(r[i], r[i + 1]);
    for (int i = 0; i < 2; ++i)
      for (int half = 0; half < 8; half += 4) {
        b[half + i] = _mm512_shuffle_i64x2(a[half + i], a[half + i + 2], 0x88);
        b[half + i + 2] = _mm512_shuffle_i64x2(a[half + i], a[half + i + 2], 0xdd);
      }
    for (int i = 0; i < 4; ++i) {
      r[i] = _mm512_shuffle_i64x2(b[i], b[i + 4], 0x88);
      r[i + 4] = _mm512_shuffle_i64x2(b[i], b[i + 4], 0xdd);
    }
  }

  Word add_word(Word a, Word b) const { return add(a, b, prime); }

  struct Sum {
    V low = _mm512_setzero_si512(), high = _mm512_setzero_si512();
  };
  static void accumulate(Sum& sum, V a, V b) {
    sum.low = _mm512_madd52lo_epu64(sum.low, a, b);
    sum.high = _mm512_madd52hi_epu64(sum.high, a, b);
  }
  // Montgomery: (low + 2^52 high) / 2^52 modulo p. The carry grows by less than 3p each time and is reduced last.
  V settle(V carried, const Sum& sum) const {
    const V low = _mm512_and_si512(sum.low, mask);
    const V high = _mm512_add_epi64(sum.high, _mm512_srli_epi64(sum.low, 52));
    const V m = _mm512_madd52lo_epu64(_mm512_setzero_si512(), low, minus_inverse);
    // low + m p is a multiple of 2^52: its upper half is that of m p, plus one unless low was zero.
    const V carry = _mm512_maskz_set1_epi64(_mm512_test_epi64_mask(low, low), 1);
    return _mm512_add_epi64(_mm512_add_epi64(carried, carry), _mm512_madd52hi_epu64(high, m, p));
  }
  V settled(V x) const {
    const V once = _mm512_madd52lo_epu64(_mm512_and_si512(x, residue_mask), _mm512_srl_epi64(x, residue_bits), fold);
    return at_most(once, p);
  }

  struct Other {
    V p, half;
  };
  static Other other(const Prime& prime) { return {all(prime.p), all(prime.p / 2)}; }
  static V reduced_other(V y, Other of) { return at_most(y, of.p); }
  V less_centred(V x, V y, Other of) const {
    const V difference = _mm512_sub_epi64(_mm512_add_epi64(x, p), y);
    return _mm512_mask_add_epi64(difference, _mm512_cmpgt_epu64_mask(y, of.half), difference, of.p);
  }
  V centred(V y, Other of) const {
    return _mm512_mask_add_epi64(y, _mm512_cmpgt_epu64_mask(y, of.half), y, _mm512_sub_epi64(p, of.p));
  }
  static V plus(V a, V b) { return _mm512_add_epi64(a, b); }
  V minus(V a, V b) const { return _mm512_sub_epi64(_mm512_add_epi64(a, p), b); }
};

}  // namespace
