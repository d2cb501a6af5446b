#include "ring.h"

#include "expansion_ring.h"
#include "service_ring.h"

namespace lattice {

namespace {

template <class Ring, std::size_t kCount>
struct Tables {
  Roots<Ring::kN> of[kCount];
  Tables() {
    for (std::size_t j = 0; j < kCount; ++j) {
      const Prime& p = Ring::kPrime[j];
      const u64 inverse_root = power(p.root, p.p - 2, p);
      for (std::size_t i = 0; i < Ring::kN; ++i) {
        of[j].forward[i] = power(p.root, reversed(i, Ring::kLogN), p);
        of[j].inverse[i] = power(inverse_root, reversed(i, Ring::kLogN), p);
      }
      of[j].inverse_n = power(Ring::kN, p.p - 2, p);
    }
  }
};

}  // namespace

const Roots<kN>& TrainingRing::roots(std::size_t prime) {
  static const Tables<TrainingRing, kPrimes> made;
  return made.of[prime];
}

const Roots<ExpansionRing::kN>& ExpansionRing::roots(std::size_t prime) {
  static const Tables<ExpansionRing, ExpansionRing::kPrimes> made;
  return made.of[prime];
}

const Roots<ServiceRing::kN>& ServiceRing::roots(std::size_t prime) {
  static const Tables<ServiceRing, ServiceRing::kPrimes> made;
  return made.of[prime];
}

}  // namespace lattice
