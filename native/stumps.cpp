// Trees of depth 1: margins move by the bin of one column, and the logistic loss gives the next gradients.
#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "kernels.h"

namespace {

// margin[i] += step[bins[i, column]]
template <class Bin>
void add_by_bin(In2<Bin> bins, std::size_t column, In1<double> step, Out1<double> margin, std::size_t threads) {
  const std::size_t rows = bins.shape(0), width = bins.shape(1);
  if (column >= width || margin.shape(0) != rows) throw std::invalid_argument("add_by_bin: shapes do not fit together");
  const std::size_t parts = useful_threads(rows, threads);
  in_parallel(parts, [&](std::size_t part) {
    const Bin* bin = bins.data() + column;
    for (std::size_t i = rows * part / parts; i < rows * (part + 1) / parts; ++i)
      margin.data()[i] += step.data()[std::min<std::size_t>(bin[i * width], step.shape(0) - 1)];
  });
}

// pairs[i] = (p, p (1 - p)) on the grid, p = 1 / (1 + exp(-margin[i])): the gradient without its label, and the hessian.
void logistic_pairs(In1<double> margin, Out2<std::int32_t> pairs, double g_scale, double h_scale,
                    std::size_t threads) {
  constexpr double kSafeExponent = 700.0, kHessianFloor = 1e-16;  // as in boost/objective.py
  const std::size_t rows = margin.shape(0);
  if (pairs.shape(0) != rows || pairs.shape(1) != 2)
    throw std::invalid_argument("logistic_pairs: shapes do not fit together");
  const std::size_t parts = useful_threads(rows * 8, threads);
  in_parallel(parts, [&](std::size_t part) {
    for (std::size_t i = rows * part / parts; i < rows * (part + 1) / parts; ++i) {
      const double bounded = std::clamp(margin.data()[i], -kSafeExponent, kSafeExponent);
      const double p = 1.0 / (std::exp(-bounded) + 1.0);
      const double h = std::max((1.0 - p) * p, kHessianFloor);
      pairs.data()[2 * i] = static_cast<std::int32_t>(std::nearbyint(p * g_scale));
      pairs.data()[2 * i + 1] = static_cast<std::int32_t>(std::nearbyint(h * h_scale));
    }
  });
}

}  // namespace

void bind_stumps(nb::module_& module) {
  module.def("add_by_bin_u8", &add_by_bin<std::uint8_t>, nb::call_guard<nb::gil_scoped_release>());
  module.def("add_by_bin_u16", &add_by_bin<std::uint16_t>, nb::call_guard<nb::gil_scoped_release>());
  module.def("logistic_pairs", &logistic_pairs, nb::call_guard<nb::gil_scoped_release>());
}
