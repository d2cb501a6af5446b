// veilboost._native: kernels that run per row. One file per kernel; `boost/` holds their Python wrappers.
#include "kernels.h"

NB_MODULE(_native, module) {
  // A thread that waits for a peer may hold objects when the interpreter exits; the system frees them.
  nanobind::set_leak_warnings(false);
  bind_binning(module);
  bind_curve(module);
  bind_expansion(module);
  bind_gradients(module);
  bind_histogram(module);
  bind_lattice(module);
  bind_level(module);
  bind_masks(module);
  bind_noise(module);
  bind_rows(module);
  bind_service(module);
  bind_shap(module);
  bind_split(module);
  bind_stumps(module);
  bind_walk(module);
}
