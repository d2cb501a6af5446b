// The ring of secure inference: N = 8192, four primes just under 2^43 and one just under 2^42, log2 q = 214. This is the
// maximum for 128 bits of classical security with ternary secrets (Bossuat and others, Security Guidelines for
// Implementing Homomorphic Encryption, 2024).
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
                                            {4398046150657ull, kResidueBits - 1, 3761857733064ull}};
  static const Roots<kN>& roots(std::size_t prime);
};

}  // namespace lattice
