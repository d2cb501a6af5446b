// Sums of integer gradients per node, feature and bin. With integers, the result does not depend on the order of
// rows or on the number of threads.
#include <cstring>
#include <stdexcept>

#include "kernels.h"

namespace {

using Pair = std::int64_t __attribute__((vector_size(16)));  // (g, h): one 128-bit add per row and feature

template <class Bin, bool kScattered>
void add_rows(const Bin* bins, std::size_t width, const std::int32_t* offsets, const std::int32_t* gradients,
              const std::int32_t* rows, std::size_t count, std::int64_t* out) {
  constexpr std::size_t kAhead = 16;  // rows of a deep node are scattered in memory: prefetch them
  constexpr std::size_t kTogether = 4;  // rows processed together share the load of a feature's offset
  Pair* sums = reinterpret_cast<Pair*>(out);
  std::size_t i = 0;
  for (; i + kTogether <= count; i += kTogether) {
    const Bin* bin[kTogether];
    Pair value[kTogether];
    for (std::size_t r = 0; r < kTogether; ++r) {
      if (kScattered && i + r + kAhead < count) {
        const std::size_t next = static_cast<std::size_t>(rows[i + r + kAhead]);
        const char* ahead = reinterpret_cast<const char*>(bins + next * width);
        for (std::size_t byte = 0; byte < width * sizeof(Bin); byte += 64) __builtin_prefetch(ahead + byte);
        __builtin_prefetch(gradients + 2 * next);
      }
      const std::size_t row = static_cast<std::size_t>(rows[i + r]);
      bin[r] = bins + row * width;
      value[r] = Pair{gradients[2 * row], gradients[2 * row + 1]};
    }
    for (std::size_t j = 0; j < width; ++j) {
      Pair* feature = sums + offsets[j];
      for (std::size_t r = 0; r < kTogether; ++r) feature[bin[r][j]] += value[r];
    }
  }
  for (; i < count; ++i) {
    const std::size_t row = static_cast<std::size_t>(rows[i]);
    const Pair value = {gradients[2 * row], gradients[2 * row + 1]};
    for (std::size_t j = 0; j < width; ++j) sums[offsets[j] + bins[row * width + j]] += value;
  }
}

// gradients (groups, rows, 2); node k holds rows[begin[k]:end[k]] and uses the gradients of group[k].
template <class Bin>
void histogram(In2<Bin> bins, In1<std::int32_t> offsets, In3<std::int32_t> gradients, In1<std::int32_t> rows,
               In1<std::int64_t> begin, In1<std::int64_t> end, In1<std::int32_t> group, Out3<std::int64_t> out,
               std::size_t threads) {
  const std::size_t width = bins.shape(1), nodes = begin.shape(0), total_rows = bins.shape(0);
  const std::size_t node_size = out.shape(1) * 2;
  if (out.shape(0) != nodes || out.shape(2) != 2 || end.shape(0) != nodes || group.shape(0) != nodes ||
      offsets.shape(0) != width + 1 || gradients.shape(1) != total_rows || gradients.shape(2) != 2 ||
      out.shape(1) != static_cast<std::size_t>(offsets.data()[width]))
    throw std::invalid_argument("histogram: shapes do not fit together");
  std::vector<std::size_t> first(nodes + 1, 0);  // start of each node in the concatenation of all rows
  for (std::size_t k = 0; k < nodes; ++k)
    first[k + 1] = first[k] + static_cast<std::size_t>(end.data()[k] - begin.data()[k]);
  const std::size_t all = first[nodes];
  const std::size_t parts = useful_threads(all * width, threads);
  constexpr std::size_t kCached = 1 << 20;  // a matrix of this many bytes fits into the L2 cache
  const bool scattered = total_rows * width * sizeof(Bin) > kCached;

  std::memset(out.data(), 0, nodes * node_size * sizeof(std::int64_t));
  // Each part takes an equal run of rows. A node that starts in an earlier part is summed separately, then added.
  std::vector<std::vector<std::int64_t>> aside(parts);
  std::vector<std::size_t> aside_node(parts, nodes);
  in_parallel(parts, [&](std::size_t part) {
    const std::size_t from = all * part / parts, to = all * (part + 1) / parts;
    for (std::size_t k = 0; k < nodes; ++k) {
      const std::size_t low = first[k] > from ? first[k] : from;
      const std::size_t high = first[k + 1] < to ? first[k + 1] : to;
      if (low >= high) continue;
      std::int64_t* sums = out.data() + k * node_size;
      if (low > first[k]) {
        aside_node[part] = k;
        // Two spare words: a Pair must be aligned to 16 bytes, as numpy's buffers are.
        aside[part].assign(node_size + 2, 0);
        sums = aside[part].data() + (reinterpret_cast<std::uintptr_t>(aside[part].data()) % 16 ? 1 : 0);
      }
      const auto add = scattered ? add_rows<Bin, true> : add_rows<Bin, false>;
      add(bins.data(), width, offsets.data(),
               gradients.data() + static_cast<std::size_t>(group.data()[k]) * total_rows * 2,
               rows.data() + begin.data()[k] + (low - first[k]), high - low, sums);
    }
  });
  for (std::size_t part = 0; part < parts; ++part) {
    if (aside_node[part] == nodes) continue;
    const std::int64_t* from =
        aside[part].data() + (reinterpret_cast<std::uintptr_t>(aside[part].data()) % 16 ? 1 : 0);
    std::int64_t* to = out.data() + aside_node[part] * node_size;
    for (std::size_t i = 0; i < node_size; ++i) to[i] += from[i];
  }
}

// Sums of (g, h) over the rows of each node.
void node_totals(In3<std::int32_t> gradients, In1<std::int32_t> rows, In1<std::int64_t> begin,
                 In1<std::int64_t> end, In1<std::int32_t> group, Out2<std::int64_t> out) {
  const std::size_t nodes = begin.shape(0), total_rows = gradients.shape(1);
  if (out.shape(0) != nodes || out.shape(1) != 2) throw std::invalid_argument("node_totals: shapes do not fit");
  for (std::size_t k = 0; k < nodes; ++k) {
    const std::int32_t* pairs = gradients.data() + static_cast<std::size_t>(group.data()[k]) * total_rows * 2;
    std::int64_t g = 0, h = 0;
    for (std::int64_t i = begin.data()[k]; i < end.data()[k]; ++i) {
      const std::size_t row = static_cast<std::size_t>(rows.data()[i]);
      g += pairs[2 * row];
      h += pairs[2 * row + 1];
    }
    out.data()[2 * k] = g;
    out.data()[2 * k + 1] = h;
  }
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
}
