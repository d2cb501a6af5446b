// The ring of secure inference: N = 8192 and five primes just under 2^43, log2 q = 215. With ternary secrets at most 218
// bits are allowed for 128 bits of security (Homomorphic Encryption Standard, 2018).
#pragma once

#include "ring.h"

namespace lattice {

struct ServiceRing {
  static constexpr std::size_t kLogN = 13, kN = std::size_t{1} << kLogN, kPrimes = 5;
  static constexpr unsigned kResidueBits = 43;
  static constexpr std::size_t kPrimeBytes = kN * kResidueBits / 8;  // a polynomial modulo one prime, packed
  static constexpr std::size_t kPolyBytes = kPrimes * kPrimeBytes;   // and modulo all
  static constexpr Prime kPrime[kPrimes] = {{8796092858369ull, kResidueBits, 4732080483711ull},
                                            {8796092792833ull, kResidueBits, 3833382005217ull},
                                            {8796092661761ull, kResidueBits, 534283243764ull},
                                            {8796092399617ull, kResidueBits, 1507580726352ull},
                                            {8796091957249ull, kResidueBits, 3698764195894ull}};
  static const Roots<kN>& roots(std::size_t prime);
};

}  // namespace lattice
