// Compiled with AVX2 and FMA; called only if the processor has them.
#include "lanes_avx2.h"
//
#include "engine_body.h"
//
#include "expansion_body.h"
#include "masks_body.h"
#include "service_body.h"

namespace {
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
}  // namespace

const lattice::Engine lattice::kAvx2 = LATTICE_ENGINE(has_avx2);
const lattice::ServiceEngine lattice::kServiceAvx2 = LATTICE_SERVICE_ENGINE(has_avx2);
const lattice::ExpansionEngine lattice::kExpansionAvx2 = LATTICE_EXPANSION_ENGINE(has_avx2);
const lattice::MaskEngine lattice::kMaskAvx2 = LATTICE_MASK_ENGINE(has_avx2);
