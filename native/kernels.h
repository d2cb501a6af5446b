// Shared by all kernels. Every kernel writes into arrays that its caller allocated and uses no Python object, so it
// runs without the interpreter's lock.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

#include "arrays.h"

// Two versions if the loader can choose between them; without fused operations both give the same bits.
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define VEILBOOST_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define VEILBOOST_WIDE
#endif

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

// Of two siblings, the one with fewer rows is summed (the left one if they have as many).
inline std::size_t smaller_of(const std::int64_t* counts, std::size_t pair) {
  return 2 * pair + (counts[2 * pair + 1] < counts[2 * pair]);
}

// Calls body(part, node, from, to, place) for runs of rows: positions from .. to of `node`, which come at `place` in the
// list of all nodes' rows. Every part takes an equal share of that list. `steps` is the work of a row.
class RowRuns {
 public:
  RowRuns(const In1<std::int64_t>& begin, const In1<std::int64_t>& end, std::size_t steps, std::size_t threads)
      : begin_(begin.data()), first_(begin.shape(0) + 1, 0) {
    if (end.shape(0) != begin.shape(0)) throw std::invalid_argument("rows: shapes do not fit together");
    for (std::size_t k = 0; k < begin.shape(0); ++k)
      first_[k + 1] = first_[k] + static_cast<std::size_t>(end.data()[k] - begin.data()[k]);
    parts = useful_threads(rows() * steps, threads);
  }
  std::size_t nodes() const { return first_.size() - 1; }
  std::size_t rows() const { return first_.back(); }
  // Whether this run is the first of its node.
  bool starts(std::size_t node, std::size_t place) const { return place == first_[node]; }

  template <class Body>
  void each(Body body) const {
    in_parallel(parts, [&](std::size_t part) {
      const std::size_t from = rows() * part / parts, to = rows() * (part + 1) / parts;
      for (std::size_t k = 0; k < nodes(); ++k) {
        const std::size_t low = std::max(first_[k], from), high = std::min(first_[k + 1], to);
        if (low >= high) continue;
        const std::size_t at = static_cast<std::size_t>(begin_[k]) + (low - first_[k]);
        body(part, k, at, at + (high - low), low);
      }
    });
  }

  std::size_t parts = 1;

 private:
  const std::int64_t* begin_;
  std::vector<std::size_t> first_;  // start of each node in the list of all rows
};

void bind_binning(nb::module_& module);
void bind_curve(nb::module_& module);
void bind_expansion(nb::module_& module);
void bind_gradients(nb::module_& module);
void bind_histogram(nb::module_& module);
void bind_lattice(nb::module_& module);
void bind_level(nb::module_& module);
void bind_masks(nb::module_& module);
void bind_noise(nb::module_& module);
void bind_rows(nb::module_& module);
void bind_service(nb::module_& module);
void bind_shap(nb::module_& module);
void bind_split(nb::module_& module);
void bind_stumps(nb::module_& module);
void bind_walk(nb::module_& module);
