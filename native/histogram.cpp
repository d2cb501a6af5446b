// Sums of integer gradients per node, feature and bin. With integers, the result does not depend on the order of
// rows or on the number of threads.
#include <cstring>
#include <type_traits>

#include "kernels.h"

namespace {

using Pair = std::int64_t __attribute__((vector_size(16)));  // (g, h): one 128-bit add per row and feature
using Word = std::uint64_t;                                   // the same in two halves: one 64-bit add

// So many rows with |g|, |h| up to the limit, or negative and one larger, add up in a word without overflow of a half.
struct Room {
  std::size_t rows;
  std::uint32_t limit;
};
constexpr Room kWords{2047, 1 << 20}, kJointWords{65535, 32767};

Word packed(std::int32_t g, std::int32_t h) {
  return (static_cast<Word>(static_cast<std::int64_t>(g)) << 32) + static_cast<Word>(static_cast<std::int64_t>(h));
}

void take(const std::int32_t* pair, Pair& value, std::uint32_t&) { value = Pair{pair[0], pair[1]}; }
void take(const std::int32_t* pair, Word& value, std::uint32_t& largest) {
  value = packed(pair[0], pair[1]);
  const auto size = [](std::int32_t x) { return static_cast<std::uint32_t>(x ^ (x >> 31)); };  // |x|, or |x| - 1
  largest = std::max(largest, std::max(size(pair[0]), size(pair[1])));
}

// Adds the pairs of these rows to the slots of their bins. Returns the largest value of words (see `Room`).
template <class Bin, class Sum, bool kScattered>
std::uint32_t add_rows(const Bin* bins, std::size_t width, const std::int32_t* offsets, const std::int32_t* gradients,
                       const std::int32_t* rows, std::size_t count, Sum* sums) {
  constexpr std::size_t kAhead = 16;  // rows of a deep node are scattered in memory: prefetch them
  constexpr std::size_t kTogether = 2;  // rows processed together share the load of a feature's offset
  std::uint32_t largest = 0;
  std::size_t i = 0;
  for (; i + kTogether <= count; i += kTogether) {
    const Bin* bin[kTogether];
    Sum value[kTogether];
    for (std::size_t r = 0; r < kTogether; ++r) {
      if (kScattered && i + r + kAhead < count) {
        const std::size_t next = static_cast<std::size_t>(rows[i + r + kAhead]);
        const char* ahead = reinterpret_cast<const char*>(bins + next * width);
        for (std::size_t byte = 0; byte < width * sizeof(Bin); byte += 64) __builtin_prefetch(ahead + byte);
        __builtin_prefetch(gradients + 2 * next);
      }
      const std::size_t row = static_cast<std::size_t>(rows[i + r]);
      bin[r] = bins + row * width;
      take(gradients + 2 * row, value[r], largest);
    }
    for (std::size_t j = 0; j < width; ++j) {
      Sum* feature = sums + offsets[j];
      for (std::size_t r = 0; r < kTogether; ++r) feature[bin[r][j]] += value[r];
    }
  }
  for (; i < count; ++i) {
    const std::size_t row = static_cast<std::size_t>(rows[i]);
    Sum value;
    take(gradients + 2 * row, value, largest);
    for (std::size_t j = 0; j < width; ++j) sums[offsets[j] + bins[row * width + j]] += value;
  }
  return largest;
}

// Columns in groups: a row has one number for the bins of all columns of a group, so a group takes one addition. The
// sums of the columns follow from those of all combinations of their bins.
struct JointBins {
  In2<std::uint16_t> bins;   // (rows, groups): bins of the group's columns as digits, the last column's first
  In1<std::int32_t> columns;  // of all groups, group after group
  In1<std::int32_t> counts;   // how many of each group
  const std::int32_t* offsets;  // of the columns' own slots
  std::vector<std::int32_t> first{0};  // slot of each group

  JointBins(In2<std::uint16_t> bins, In1<std::int32_t> columns, In1<std::int32_t> counts, In1<std::int32_t> offsets,
            std::size_t rows)
      : bins(bins), columns(columns), counts(counts), offsets(offsets.data()) {
    const std::size_t width = offsets.shape(0) - 1;
    bool fits = counts.shape(0) == bins.shape(1) && (groups() == 0 || bins.shape(0) == rows);
    std::vector<char> seen(width, 0);
    std::size_t at = 0;
    for (std::size_t k = 0; fits && k < groups(); ++k) {
      std::int64_t slots = 1;
      for (std::int32_t n = 0; fits && n < counts.data()[k]; ++n, ++at) {
        fits = at < columns.shape(0) && static_cast<std::size_t>(columns.data()[at]) < width && !seen[columns.data()[at]];
        if (fits) slots *= width_of(columns.data()[at]), seen[columns.data()[at]] = 1;
        fits = fits && slots <= 1 << 16;
      }
      first.push_back(first.back() + static_cast<std::int32_t>(slots));
    }
    if (!fits || at != columns.shape(0) || (groups() > 0 && at != width))
      throw std::invalid_argument("histogram: groups of columns do not fit together");
  }
  std::size_t groups() const { return bins.shape(1); }
  std::size_t slots() const { return static_cast<std::size_t>(first.back()); }
  std::int32_t width_of(std::int32_t column) const { return offsets[column + 1] - offsets[column]; }
  // Whether a node of this many rows gains. Nodes with fewer do in a loop, but not in training, where these numbers
  // and sums replace others in the caches.
  bool pays(std::size_t rows) const { return groups() > 0 && rows * (columns.shape(0) - groups()) > 32 * slots(); }

  // Adds up the sums of all combinations, which are overwritten, to those of each column.
  void separate(Word* joint, Word* sums) const {
    const std::int32_t* column = columns.data();
    for (std::size_t k = 0; k < groups(); ++k) {
      Word* own = joint + first[k];
      std::size_t left = static_cast<std::size_t>(first[k + 1] - first[k]);
      for (std::int32_t n = counts.data()[k]; n-- > 0;) {  // the last column's bins are neighbours
        const std::size_t width = static_cast<std::size_t>(width_of(column[n]));
        Word* feature = sums + offsets[column[n]];
        left /= width;
        for (std::size_t at = 0; at < left; ++at) {
          Word sum = 0;
          for (std::size_t bin = 0; bin < width; ++bin) {
            feature[bin] += own[at * width + bin];
            sum += own[at * width + bin];
          }
          own[at] = sum;
        }
      }
      column += counts.data()[k];
    }
  }
};

// gradients (groups, rows, 2); node k holds rows[begin[k]:end[k]] and uses the gradients of group[k]. `joint_bins` may
// have no columns.
template <class Bin>
void histogram(In2<Bin> bins, In1<std::int32_t> offsets, In2<std::uint16_t> joint_bins, In1<std::int32_t> joint_columns,
               In1<std::int32_t> joint_counts, In3<std::int32_t> gradients, In1<std::int32_t> rows, In1<std::int64_t> begin,
               In1<std::int64_t> end, In1<std::int32_t> group, Out3<std::int64_t> out, std::size_t threads) {
  const std::size_t width = bins.shape(1), nodes = begin.shape(0), total_rows = bins.shape(0), slots = out.shape(1);
  if (out.shape(0) != nodes || out.shape(2) != 2 || group.shape(0) != nodes || offsets.shape(0) != width + 1 ||
      gradients.shape(1) != total_rows || gradients.shape(2) != 2 ||
      slots != static_cast<std::size_t>(offsets.data()[width]))
    throw std::invalid_argument("histogram: shapes do not fit together");
  const JointBins joint(joint_bins, joint_columns, joint_counts, offsets, total_rows);
  const RowRuns runs(begin, end, width, threads);
  constexpr std::size_t kCached = 1 << 20;  // a matrix of this many bytes fits into the L2 cache
  const bool large = total_rows * width * sizeof(Bin) > kCached;

  std::memset(out.data(), 0, nodes * slots * sizeof(Pair));
  std::vector<std::vector<Pair>> aside(runs.runs.size());  // sums of runs that are not the first of their node
  std::vector<std::vector<Word>> words(runs.threads), combinations(runs.threads);
  runs.each([&](const RowRuns::Run& run, std::size_t thread) {
    Pair* sums = reinterpret_cast<Pair*>(out.data()) + run.node * slots;
    if (!run.first) {
      aside[run.number].assign(slots, Pair{0, 0});
      sums = aside[run.number].data();
    }
    const std::int32_t* pairs = gradients.data() + static_cast<std::size_t>(group.data()[run.node]) * total_rows * 2;
    const std::int32_t* own = rows.data() + run.from;
    std::size_t left = run.rows();
    const bool scattered = large && static_cast<std::size_t>(own[left - 1] - own[0]) > 2 * left;
    const auto add = [&](auto* matrix, std::size_t columns, const std::int32_t* first, std::size_t count, auto* into) {
      using Number = std::remove_const_t<std::remove_pointer_t<decltype(matrix)>>;
      using Sum = std::remove_pointer_t<decltype(into)>;
      const auto kernel = scattered ? add_rows<Number, Sum, true> : add_rows<Number, Sum, false>;
      return kernel(matrix, columns, first, pairs, own, count, into);
    };
    const auto unpack = [&] {
      for (std::size_t s = 0; s < slots; ++s) {
        const std::int64_t h = static_cast<std::int32_t>(words[thread][s]);
        sums[s] += Pair{static_cast<std::int64_t>(words[thread][s] - static_cast<Word>(h)) >> 32, h};
      }
    };
    for (std::size_t count; joint.pays(left); left -= count, own += count) {
      count = std::min(left, kJointWords.rows);
      combinations[thread].assign(joint.slots(), 0);
      if (add(joint.bins.data(), joint.groups(), joint.first.data(), count, combinations[thread].data()) > kJointWords.limit) break;
      words[thread].assign(slots, 0);
      joint.separate(combinations[thread].data(), words[thread].data());
      unpack();
    }
    for (std::size_t count; left * width > slots; left -= count, own += count) {  // else to clear and read words costs more
      count = std::min(left, kWords.rows);
      words[thread].assign(slots, 0);
      if (add(bins.data(), width, offsets.data(), count, words[thread].data()) > kWords.limit) break;
      unpack();
    }
    add(bins.data(), width, offsets.data(), left, sums);
  });
  for (const RowRuns::Run& run : runs.runs) {
    if (run.first) continue;
    Pair* to = reinterpret_cast<Pair*>(out.data()) + run.node * slots;
    for (std::size_t s = 0; s < slots; ++s) to[s] += aside[run.number][s];
  }
}

// Sums of (g, h) over the rows of each node.
void node_totals(In3<std::int32_t> gradients, In1<std::int32_t> rows, In1<std::int64_t> begin,
                 In1<std::int64_t> end, In1<std::int32_t> group, Out2<std::int64_t> out, std::size_t threads) {
  const std::size_t nodes = begin.shape(0), total_rows = gradients.shape(1);
  if (out.shape(0) != nodes || out.shape(1) != 2 || group.shape(0) != nodes)
    throw std::invalid_argument("node_totals: shapes do not fit");
  const RowRuns runs(begin, end, 4, threads);
  std::vector<Pair> sums(runs.runs.size());
  runs.each([&](const RowRuns::Run& run, std::size_t) {
    const std::int32_t* pairs = gradients.data() + static_cast<std::size_t>(group.data()[run.node]) * total_rows * 2;
    Pair sum{0, 0};
    for (std::size_t i = run.from; i < run.to; ++i) {
      const std::int32_t* pair = pairs + 2 * static_cast<std::size_t>(rows.data()[i]);
      sum += Pair{pair[0], pair[1]};
    }
    sums[run.number] = sum;
  });
  std::memset(out.data(), 0, nodes * sizeof(Pair));
  for (const RowRuns::Run& run : runs.runs) reinterpret_cast<Pair*>(out.data())[run.node] += sums[run.number];
}

// The same for the smaller of each two siblings: out (pairs, 2).
void smaller_totals(In3<std::int32_t> gradients, In1<std::int32_t> rows, In1<std::int64_t> begin,
                    In1<std::int64_t> end, In1<std::int32_t> group, Out2<std::int64_t> out, std::size_t threads) {
  const std::size_t pairs = out.shape(0);
  if (begin.shape(0) != 2 * pairs || end.shape(0) != 2 * pairs || group.shape(0) != 2 * pairs)
    throw std::invalid_argument("smaller_totals: shapes do not fit");
  std::vector<std::int64_t> counts(2 * pairs), from(pairs), to(pairs);
  std::vector<std::int32_t> of(pairs);
  for (std::size_t k = 0; k < 2 * pairs; ++k) counts[k] = end.data()[k] - begin.data()[k];
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    const std::size_t smaller = smaller_of(counts.data(), pair);
    from[pair] = begin.data()[smaller];
    to[pair] = end.data()[smaller];
    of[pair] = group.data()[smaller];
  }
  const npy_intp shape = static_cast<npy_intp>(pairs);
  node_totals(gradients, rows, {from.data(), &shape}, {to.data(), &shape}, {of.data(), &shape}, out, threads);
}

// Sums of a whole level: `build` directly, `derive` as the parent's sums minus the sibling's.
void complete_sums(In3<std::int64_t> built, In1<std::int64_t> build, In3<std::int64_t> last,
                   In1<std::int64_t> derive, In1<std::int64_t> parent, Out3<std::int64_t> every) {
  const std::size_t size = every.shape(1) * every.shape(2), nodes = every.shape(0);
  const auto inside = [](std::int64_t at, std::size_t count) { return at >= 0 && static_cast<std::size_t>(at) < count; };
  if (built.shape(0) != build.shape(0) || built.shape(1) * built.shape(2) != size ||
      parent.shape(0) != derive.shape(0) || (derive.shape(0) > 0 && last.shape(1) * last.shape(2) != size))
    throw std::invalid_argument("complete_sums: shapes do not fit together");
  for (std::size_t k = 0; k < build.shape(0); ++k) {
    if (!inside(build.data()[k], nodes)) throw std::invalid_argument("complete_sums: no such node");
    std::memcpy(every.data() + build.data()[k] * size, built.data() + k * size, size * sizeof(std::int64_t));
  }
  for (std::size_t k = 0; k < derive.shape(0); ++k) {
    const std::int64_t node = derive.data()[k], above = parent.data()[k];
    if (!inside(node, nodes) || !inside(node ^ 1, nodes) || !inside(above, last.shape(0)))
      throw std::invalid_argument("complete_sums: no such node");
    const std::int64_t* whole = last.data() + above * size;
    const std::int64_t* sibling = every.data() + (node ^ 1) * size;
    std::int64_t* out = every.data() + node * size;
    for (std::size_t i = 0; i < size; ++i) out[i] = whole[i] - sibling[i];
  }
}

}  // namespace

void bind_histogram(nb::module_& module) {
  module.def("histogram_u8", &histogram<std::uint8_t>, nb::call_guard<nb::gil_scoped_release>());
  module.def("histogram_u16", &histogram<std::uint16_t>, nb::call_guard<nb::gil_scoped_release>());
  module.def("complete_sums", &complete_sums, nb::call_guard<nb::gil_scoped_release>());
  module.def("node_totals", &node_totals, nb::call_guard<nb::gil_scoped_release>());
  module.def("smaller_totals", &smaller_totals, nb::call_guard<nb::gil_scoped_release>());
}
