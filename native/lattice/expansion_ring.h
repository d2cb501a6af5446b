// The ring of dense ciphertexts: N = 8192, the two primes of training and a special prime for key switching,
// log2 q = 100 and 150 with the special prime. For 128 bits of classical security with ternary secrets it may be 214
// (Bossuat and others, Security Guidelines for Implementing Homomorphic Encryption, 2024).
#pragma once

#include "ring.h"

namespace lattice {

struct ExpansionRing {
  static constexpr std::size_t kLogN = 13, kN = std::size_t{1} << kLogN;
  static constexpr std::size_t kModuli = 2, kPrimes = 3;  // the last prime is the special one
  static constexpr std::size_t kPolyBytes = kN * kResidueBits / 8;
  static constexpr Prime kPrime[kPrimes] = {{1125899906826241ull, kResidueBits, 783305341123190ull},
                                            {1125899906629633ull, kResidueBits, 1020585629616648ull},
                                            {1125899905744897ull, kResidueBits, 270066943051113ull}};
  static const Roots<kN>& roots(std::size_t prime);
};

}  // namespace lattice
