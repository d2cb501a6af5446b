// The ring Z_q[X] / (X^N + 1) of training, q the product of two primes just under 2^50: constants, and arithmetic on
// single residues, which other rings use as well. Tables are made once; the engines convert them for their
// instructions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lattice {

using u64 = std::uint64_t;
using u128 = unsigned __int128;

constexpr std::size_t kLogN = 12, kN = std::size_t{1} << kLogN;
constexpr std::size_t kPrimes = 2;
constexpr unsigned kResidueBits = 50;
constexpr std::size_t kPolyBytes = kN * kResidueBits / 8;  // one polynomial modulo one prime, packed
constexpr std::size_t kSeedBytes = 32;
constexpr unsigned kErrorBits = 21;  // centred binomial: the difference of two sums of this many coins, sigma 3.24

// p = 2^bits - fold with fold tiny, so that reducing costs a multiplication and no division; p = 1 modulo 2N.
struct Prime {
  u64 p;
  unsigned bits;  // 42 to 50
  u64 fold, root;  // root: of order 2N
  constexpr Prime(u64 p_, unsigned bits_, u64 root_) : p(p_), bits(bits_), fold((u64{1} << bits_) - p_), root(root_) {}
  constexpr u64 mask() const { return (u64{1} << bits) - 1; }
};
constexpr Prime kPrime[kPrimes] = {{1125899906826241ull, kResidueBits, 1094367314627419ull},
                                   {1125899906629633ull, kResidueBits, 967006076000656ull}};

constexpr u64 kResidueMask = (u64{1} << kResidueBits) - 1;

// x mod p for x below 2^64.
constexpr u64 reduce(u64 x, const Prime& prime) {
  const u64 once = (x & prime.mask()) + (x >> prime.bits) * prime.fold;
  return once >= prime.p ? once - prime.p : once;
}

// x mod p for x below 2^112, or below 2^104 if p has 42 or 43 bits.
constexpr u64 reduce_wide(u128 x, const Prime& prime) {
  const u128 once = (x & prime.mask()) + (x >> prime.bits) * prime.fold;
  return reduce(static_cast<u64>(once & prime.mask()) + static_cast<u64>(once >> prime.bits) * prime.fold, prime);
}

constexpr u64 multiply(u64 a, u64 b, const Prime& prime) { return reduce_wide(static_cast<u128>(a) * b, prime); }

constexpr u64 power(u64 base, u64 exponent, const Prime& prime) {
  u64 result = 1;
  for (; exponent; exponent >>= 1, base = multiply(base, base, prime))
    if (exponent & 1) result = multiply(result, base, prime);
  return result;
}

constexpr u64 add(u64 a, u64 b, const Prime& prime) { return a + b >= prime.p ? a + b - prime.p : a + b; }
constexpr u64 subtract(u64 a, u64 b, const Prime& prime) { return a >= b ? a - b : a + prime.p - b; }

// The residue of a signed number of magnitude below 2^63.
constexpr u64 residue(std::int64_t value, const Prime& prime) {
  const u64 size = reduce(value < 0 ? u64{0} - static_cast<u64>(value) : static_cast<u64>(value), prime);
  return value < 0 && size ? prime.p - size : size;
}

constexpr std::size_t reversed(std::size_t index, std::size_t bits) {
  std::size_t result = 0;
  for (std::size_t bit = 0; bit < bits; ++bit) result |= (index >> bit & 1) << (bits - 1 - bit);
  return result;
}

// Powers of the root in bit-reversed order, forward and inverse, and 1/N, for a negacyclic transform.
template <std::size_t kDegree>
struct Roots {
  u64 forward[kDegree], inverse[kDegree], inverse_n;
};

// The interface of a ring for transforms; its tables are made on first use.
struct TrainingRing {
  static constexpr std::size_t kLogN = lattice::kLogN, kN = lattice::kN;
  static constexpr const Prime* kPrime = lattice::kPrime;
  static const Roots<kN>& roots(std::size_t prime);
};

}  // namespace lattice
