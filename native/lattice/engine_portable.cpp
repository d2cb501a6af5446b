#include "lanes_portable.h"
//
#include "engine_body.h"
//
#include "expansion_body.h"
#include "masks_body.h"
#include "service_body.h"

namespace {
bool anywhere() { return true; }
}  // namespace

const lattice::Engine lattice::kPortable = LATTICE_ENGINE(anywhere);
const lattice::ServiceEngine lattice::kServicePortable = LATTICE_SERVICE_ENGINE(anywhere);
const lattice::ExpansionEngine lattice::kExpansionPortable = LATTICE_EXPANSION_ENGINE(anywhere);
const lattice::MaskEngine lattice::kMaskPortable = LATTICE_MASK_ENGINE(anywhere);
