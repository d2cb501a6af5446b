// veilboost._native.curve_*: points of Curve25519, many at a time, spread over threads.
#include <atomic>
#include <stdexcept>

#include "curve/points.h"
#include "kernels.h"

#ifndef VEILBOOST_X86  // never called: see `supported`
bool curve::multiply(const std::uint8_t*, const std::uint8_t*, std::size_t, std::uint8_t*) { return false; }
void curve::map(const std::uint8_t*, std::size_t, std::uint8_t*) {}
#endif

namespace {

using curve::kBytes;
using curve::kPointsAtOnce;

bool supported() {
#ifdef VEILBOOST_X86
  return __builtin_cpu_supports("avx2");
#else
  return false;
#endif
}

// body(first, count) for parts of at most kPointsAtOnce points.
template <class Body>
void in_parts(std::size_t points, std::size_t threads, Body body) {
  const std::size_t parts = (points + kPointsAtOnce - 1) / kPointsAtOnce;
  std::atomic<std::size_t> next{0};
  in_parallel(parts < threads ? parts : threads, [&](std::size_t) {
    for (std::size_t part; (part = next++) < parts;) {
      const std::size_t first = part * kPointsAtOnce;
      body(first, points - first < kPointsAtOnce ? points - first : kPointsAtOnce);
    }
  });
}

bool multiply(In2<std::uint8_t> points, const nb::bytes& scalar, Out2<std::uint8_t> out, std::size_t threads) {
  if (!supported() || points.shape(1) != kBytes || scalar.size() != kBytes || out.shape(0) != points.shape(0) || out.shape(1) != kBytes)
    throw std::invalid_argument("curve_multiply: needs AVX2 and shapes that fit together");
  const auto* factor = static_cast<const std::uint8_t*>(scalar.data());
  std::atomic<bool> good{true};
  const nb::gil_scoped_release released;
  in_parts(points.shape(0), threads, [&](std::size_t first, std::size_t count) {
    if (!curve::multiply(factor, points.data() + first * kBytes, count, out.data() + first * kBytes)) good = false;
  });
  return good;
}

void map(In2<std::uint8_t> uniform, Out2<std::uint8_t> out, std::size_t threads) {
  if (!supported() || uniform.shape(1) != 2 * kBytes || out.shape(0) != uniform.shape(0) || out.shape(1) != kBytes)
    throw std::invalid_argument("curve_map: needs AVX2 and shapes that fit together");
  const nb::gil_scoped_release released;
  in_parts(uniform.shape(0), threads, [&](std::size_t first, std::size_t count) {
    curve::map(uniform.data() + first * 2 * kBytes, count, out.data() + first * kBytes);
  });
}

}  // namespace

void bind_curve(nb::module_& module) {
  module.def("curve_supported", &supported);
  module.def("curve_multiply", &multiply);
  module.def("curve_map", &map);
}
