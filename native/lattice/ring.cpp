#include "ring.h"

namespace lattice {

const Roots& roots(std::size_t prime) {
  struct Made {
    Roots of[kPrimes];
    Made() {
      for (std::size_t j = 0; j < kPrimes; ++j) {
        const Prime& p = kPrime[j];
        const u64 inverse_root = power(p.root, p.p - 2, p);
        for (std::size_t i = 0; i < kN; ++i) {
          of[j].forward[i] = power(p.root, reversed(i, kLogN), p);
          of[j].inverse[i] = power(inverse_root, reversed(i, kLogN), p);
        }
        of[j].inverse_n = power(kN, p.p - 2, p);
      }
    }
  };
  static const Made made;
  return made.of[prime];
}

}  // namespace lattice
