// Compiled with AVX-512 IFMA; called only where the processor has it.
#include "lanes_ifma.h"
//
#include "engine_body.h"

namespace {
bool has_ifma() { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512ifma"); }
}  // namespace

const lattice::Engine lattice::kIfma = LATTICE_ENGINE(has_ifma);
