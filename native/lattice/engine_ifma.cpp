// Compiled with AVX-512 IFMA (and VPOPCNTDQ, which such processors have too); called only if the processor has both.
#include "lanes_ifma.h"
//
#include "engine_body.h"
//
#include "expansion_body.h"
#include "masks_body.h"
#include "service_body.h"

namespace {
bool has_ifma() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512ifma") &&
         __builtin_cpu_supports("avx512vpopcntdq");
}
}  // namespace

const lattice::Engine lattice::kIfma = LATTICE_ENGINE(has_ifma);
const lattice::ServiceEngine lattice::kServiceIfma = LATTICE_SERVICE_ENGINE(has_ifma);
const lattice::ExpansionEngine lattice::kExpansionIfma = LATTICE_EXPANSION_ENGINE(has_ifma);
const lattice::MaskEngine lattice::kMaskIfma = LATTICE_MASK_ENGINE(has_ifma);
