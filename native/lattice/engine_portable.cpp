#include "lanes_portable.h"
//
#include "engine_body.h"

namespace {
bool anywhere() { return true; }
}  // namespace

const lattice::Engine lattice::kPortable = LATTICE_ENGINE(anywhere);
