// Shared by all kernels. Every kernel writes into arrays that its caller allocated and uses no Python object, so it
// runs without the interpreter's lock.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "arrays.h"
#include "threads.h"

// Two versions if the loader can choose between them; without fused operations both give the same bits.
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define VEILBOOST_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define VEILBOOST_WIDE
#endif

// A thread takes tens of microseconds to wake: give each at least this many row-by-column steps.
inline std::size_t useful_threads(std::size_t steps, std::size_t threads) {
  constexpr std::size_t kStepsPerThread = 200000;
  const std::size_t worthwhile = steps / kStepsPerThread;
  return worthwhile < 1 ? 1 : (worthwhile < threads ? worthwhile : threads);
}

// Of two siblings, the one with fewer rows is summed (the left one if they have as many).
inline std::size_t smaller_of(const std::int64_t* counts, std::size_t pair) {
  return 2 * pair + (counts[2 * pair + 1] < counts[2 * pair]);
}

// The rows of some nodes in runs, which threads take in turn: the rows of some nodes cost more than those of others.
// `steps` is the work of a row. One thread has one run for each node.
class RowRuns {
 public:
  struct Run {
    std::size_t number, node, from, to;  // the rows at positions from .. to
    std::size_t place;  // of the first one in the list of all nodes' rows
    bool first;  // of its node
    std::size_t rows() const { return to - from; }
  };

  RowRuns(const In1<std::int64_t>& begin, const In1<std::int64_t>& end, std::size_t steps, std::size_t threads)
      : nodes(begin.shape(0)) {
    if (end.shape(0) != nodes) throw std::invalid_argument("rows: shapes do not fit together");
    for (std::size_t k = 0; k < nodes; ++k) rows += static_cast<std::size_t>(end.data()[k] - begin.data()[k]);
    this->threads = useful_threads(rows * steps, threads);
    const std::size_t most = this->threads == 1 ? rows : rows / (kRunsPerThread * this->threads) + 1;
    runs.reserve(nodes + (this->threads == 1 ? 0 : kRunsPerThread * this->threads));
    std::size_t place = 0;
    for (std::size_t k = 0; k < nodes; ++k) {
      const std::size_t from = static_cast<std::size_t>(begin.data()[k]), count = static_cast<std::size_t>(end.data()[k]) - from;
      const std::size_t pieces = count == 0 ? 0 : (count - 1) / most + 1;
      for (std::size_t piece = 0; piece < pieces; ++piece) {
        const std::size_t low = count * piece / pieces, high = count * (piece + 1) / pieces;
        runs.push_back({runs.size(), k, from + low, from + high, place + low, piece == 0});
      }
      place += count;
    }
  }

  // Calls body(run, thread) for every run. Each thread begins with a share of its own, then helps the others.
  template <class Body>
  void each(Body body) const {
    std::vector<std::atomic<std::size_t>> next(threads);
    const auto share = [&](std::size_t thread) { return runs.size() * thread / threads; };
    for (std::size_t thread = 0; thread < threads; ++thread) next[thread] = share(thread);
    in_parallel(threads, [&](std::size_t thread) {
      for (std::size_t turn = 0; turn < threads; ++turn) {
        const std::size_t whose = (thread + turn) % threads, last = share(whose + 1);
        for (std::size_t number; (number = next[whose]++) < last;) body(runs[number], thread);
      }
    });
  }

  std::size_t nodes, rows = 0, threads = 1;
  std::vector<Run> runs;

 private:
  static constexpr std::size_t kRunsPerThread = 8;
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
