// Shared by all kernels. Every kernel writes into arrays that its caller allocated and uses no Python object, so it
// runs without the interpreter's lock.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace nb = nanobind;

template <class T>
using In1 = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using In2 = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using In3 = nb::ndarray<const T, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
template <class T>
using Out1 = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Out2 = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Out3 = nb::ndarray<T, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

// Calls body(part) for part = 0 .. parts-1, each on its own thread; parts = 1 runs on this thread.
template <class Body>
void in_parallel(std::size_t parts, Body body) {
  std::vector<std::thread> helpers;
  helpers.reserve(parts > 0 ? parts - 1 : 0);
  for (std::size_t part = 1; part < parts; ++part) helpers.emplace_back(body, part);
  if (parts > 0) body(0);
  for (auto& helper : helpers) helper.join();
}

// A thread costs tens of microseconds to start: give each at least this many row-by-column steps.
inline std::size_t useful_threads(std::size_t steps, std::size_t threads) {
  constexpr std::size_t kStepsPerThread = 200000;
  const std::size_t worthwhile = steps / kStepsPerThread;
  return worthwhile < 1 ? 1 : (worthwhile < threads ? worthwhile : threads);
}

void bind_binning(nb::module_& module);
void bind_expansion(nb::module_& module);
void bind_histogram(nb::module_& module);
void bind_lattice(nb::module_& module);
void bind_masks(nb::module_& module);
void bind_noise(nb::module_& module);
void bind_rows(nb::module_& module);
void bind_service(nb::module_& module);
void bind_split(nb::module_& module);
void bind_stumps(nb::module_& module);
