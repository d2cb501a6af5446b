// Derivatives of the logistic loss, and gradients on the fixed-point grid.
#include <atomic>
#include <cstring>

#include "kernels.h"

namespace {

// exp(x) for |x| <= 700 to about one unit in the last place, in steps that the compiler turns into vectors:
// x = k ln 2 + r with |r| <= ln 2 / 2, a Taylor polynomial of r, and k added to the exponent.
inline double vector_exp(double x) {
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
  const double shifted = x * 1.4426950408889634 + kRound;
  const double k = shifted - kRound;
  double r = x - k * 6.93147180369123816490e-01;  // ln 2 in two parts
  r -= k * 1.90821492927058770002e-10;
  double e = 1.0 / 6227020800.0;
  e = e * r + 1.0 / 479001600.0;
  e = e * r + 1.0 / 39916800.0;
  e = e * r + 1.0 / 3628800.0;
  e = e * r + 1.0 / 362880.0;
  e = e * r + 1.0 / 40320.0;
  e = e * r + 1.0 / 5040.0;
  e = e * r + 1.0 / 720.0;
  e = e * r + 1.0 / 120.0;
  e = e * r + 1.0 / 24.0;
  e = e * r + 1.0 / 6.0;
  e = e * r + 0.5;
  e = e * r + 1.0;
  e = e * r + 1.0;
  std::uint64_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = (bits + 1023) << 52;
  double power;
  std::memcpy(&power, &bits, sizeof power);
  return e * power;
}

// The integer nearest to a value of magnitude well below 2^51.
inline double rounded(double value) {
  constexpr double kRound = 6755399441055744.0;
  return (value + kRound) - kRound;
}

constexpr std::size_t kBlock = 512;

// Calls body(begin, count) for blocks of rows, in as many threads as pay.
template <class Body>
void in_blocks(std::size_t rows, std::size_t threads, Body body) {
  const std::size_t parts = useful_threads(rows * 8, threads);
  in_parallel(parts, [&](std::size_t part) {
    const std::size_t end = rows * (part + 1) / parts;
    for (std::size_t begin = rows * part / parts; begin < end; begin += kBlock) body(begin, std::min(kBlock, end - begin));
  });
}

inline double sigmoid(double margin) {
  constexpr double kSafeExponent = 700.0;  // as in boost/objective.py
  const double below = margin > kSafeExponent ? kSafeExponent : margin;  // NaN stays NaN
  const double bounded = below < -kSafeExponent ? -kSafeExponent : below;
  return 1.0 / (vector_exp(-bounded) + 1.0);
}

inline double logistic_hessian(double p) {
  constexpr double kHessianFloor = 1e-16;  // as in boost/objective.py
  const double variance = (1.0 - p) * p;
  return variance < kHessianFloor ? kHessianFloor : variance;
}

// Arithmetic first, which is vectorised; then the stores, which are not.
VEILBOOST_WIDE void pairs_of_block(const double* margin, std::int32_t* pairs, std::size_t count, double g_scale, double h_scale) {
  double g[kBlock], h[kBlock];
  for (std::size_t i = 0; i < count; ++i) {
    const double p = sigmoid(margin[i]);
    g[i] = rounded(p * g_scale);
    h[i] = rounded(logistic_hessian(p) * h_scale);
  }
  for (std::size_t i = 0; i < count; ++i) {
    pairs[2 * i] = static_cast<std::int32_t>(g[i]);
    pairs[2 * i + 1] = static_cast<std::int32_t>(h[i]);
  }
}

// pairs[i] = (p, p (1 - p)) on the grid, p = 1 / (1 + exp(-margin[i])): the gradient without its label, and the hessian.
void logistic_pairs(In1<double> margin, Out2<std::int32_t> pairs, double g_scale, double h_scale,
                    std::size_t threads) {
  const std::size_t rows = margin.shape(0);
  if (pairs.shape(0) != rows || pairs.shape(1) != 2)
    throw std::invalid_argument("logistic_pairs: shapes do not fit together");
  in_blocks(rows, threads, [&](std::size_t begin, std::size_t count) {
    pairs_of_block(margin.data() + begin, pairs.data() + 2 * begin, count, g_scale, h_scale);
  });
}

VEILBOOST_WIDE void derivatives_of_rows(const double* margin, const double* y, std::size_t count, double* g, double* h) {
  for (std::size_t i = 0; i < count; ++i) {
    const double p = sigmoid(margin[i]);
    g[i] = p - y[i];
    h[i] = logistic_hessian(p);
  }
}

// g = p - y and h = p (1 - p), p = 1 / (1 + exp(-margin)).
void logistic_gradients(In1<double> margin, In1<double> y, Out1<double> g, Out1<double> h, std::size_t threads) {
  const std::size_t rows = margin.shape(0);
  if (y.shape(0) != rows || g.shape(0) != rows || h.shape(0) != rows)
    throw std::invalid_argument("logistic_gradients: shapes do not fit together");
  in_blocks(rows, threads, [&](std::size_t begin, std::size_t count) {
    derivatives_of_rows(margin.data() + begin, y.data() + begin, count, g.data() + begin, h.data() + begin);
  });
}

// `weight` may be null. Returns whether all values are numbers within the limit; comparisons with NaN are false.
VEILBOOST_WIDE bool fixed_of_block(const double* g, const double* h, const double* weight, std::size_t count,
                                   double g_scale, double h_scale, double limit, std::int32_t* pairs) {
  double scaled[2][kBlock];
  for (std::size_t i = 0; i < count; ++i) {
    scaled[0][i] = rounded(g[i] * g_scale);
    scaled[1][i] = rounded(h[i] * h_scale);
  }
  std::size_t within = 0;
  for (auto& values : scaled) {
    if (weight != nullptr)
      for (std::size_t i = 0; i < count; ++i) values[i] = rounded(values[i] * weight[i]);
    for (std::size_t i = 0; i < count; ++i) within += (values[i] >= -limit) & (values[i] <= limit);
  }
  if (within != 2 * count) return false;
  for (std::size_t i = 0; i < count; ++i) {
    pairs[2 * i] = static_cast<std::int32_t>(scaled[0][i]);
    pairs[2 * i + 1] = static_cast<std::int32_t>(scaled[1][i]);
  }
  return true;
}

// pairs (groups, rows, 2): g and h (groups, rows), scaled and rounded, then times the rows' weights (no rows: 1 each)
// and rounded again. Returns false if a value is not within the limit.
bool fixed_pairs(In2<double> g, In2<double> h, In1<double> weight, double g_scale, double h_scale, double limit,
                 Out3<std::int32_t> pairs, std::size_t threads) {
  const std::size_t groups = g.shape(0), rows = g.shape(1), weights = weight.shape(0);
  if (h.shape(0) != groups || h.shape(1) != rows || (weights != 0 && weights != rows) || pairs.shape(0) != groups ||
      pairs.shape(1) != rows || pairs.shape(2) != 2)
    throw std::invalid_argument("fixed_pairs: shapes do not fit together");
  std::atomic<bool> fits{true};
  for (std::size_t k = 0; fits && k < groups; ++k)
    in_blocks(rows, threads, [&](std::size_t begin, std::size_t count) {
      const std::size_t at = k * rows + begin;
      if (fits && !fixed_of_block(g.data() + at, h.data() + at, weights ? weight.data() + begin : nullptr, count, g_scale,
                                  h_scale, limit, pairs.data() + 2 * at))
        fits = false;
    });
  return fits;
}

}  // namespace

void bind_gradients(nb::module_& module) {
  module.def("logistic_pairs", &logistic_pairs, nb::call_guard<nb::gil_scoped_release>());
  module.def("logistic_gradients", &logistic_gradients, nb::call_guard<nb::gil_scoped_release>());
  module.def("fixed_pairs", &fixed_pairs, nb::call_guard<nb::gil_scoped_release>());
}
