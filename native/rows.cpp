// Left/right assignments of rows, and rows grouped by node after a split.
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "kernels.h"

#if defined(VEILBOOST_X86) && defined(__GNUC__)
#include <immintrin.h>
#define VEILBOOST_COMPACT
#endif

namespace {

// left[i] = goes_left[k][bin of row i in column[k]] for the rows of each node k, node after node. The matrix of bins
// (rows, columns) may be stored by rows or by columns.
template <class Bin>
void route(nb::ndarray<const Bin, nb::ndim<2>, nb::device::cpu> bins, In1<std::int32_t> rows,
           In1<std::int64_t> begin, In1<std::int64_t> end, In1<std::int32_t> column, In2<std::uint8_t> goes_left,
           Out1<std::uint8_t> left, std::size_t threads) {
  const RowRuns runs(begin, end, 4, threads);
  for (std::size_t k = 0; k < column.shape(0); ++k)
    if (static_cast<std::size_t>(column.data()[k]) >= bins.shape(1)) throw std::invalid_argument("route: no such column");
  if (left.shape(0) != runs.rows() || column.shape(0) != runs.nodes() || goes_left.shape(0) != runs.nodes())
    throw std::invalid_argument("route: shapes do not fit together");
  const std::int64_t step = bins.stride(0);
  runs.each([&](std::size_t, std::size_t k, std::size_t from, std::size_t to, std::size_t place) {
    const std::uint8_t* table = goes_left.data() + k * goes_left.shape(1);
    const Bin* values = bins.data() + column.data()[k] * bins.stride(1);
    const std::int32_t* own = rows.data();
    std::uint8_t* __restrict out = left.data() + place;
    if (step == 1)
      for (std::size_t i = from; i < to; ++i) *out++ = table[values[own[i]]];
    else
      for (std::size_t i = from; i < to; ++i) *out++ = table[values[own[i] * step]];
  });
}

// Left/right assignments of the rows of some nodes, node after node: a byte or a bit each.
struct Assignments {
  const std::uint8_t* values;
  bool packed;

  // Calls body(1 or 0) for `count` rows from the one at `first`.
  template <class Body>
  [[gnu::always_inline]] void each(std::size_t first, std::size_t count, Body body) const {
    std::size_t i = first;
    const std::size_t last = first + count;
    const auto bits_until = [&](std::size_t stop) {
      for (; i < stop; ++i) body(static_cast<std::size_t>(values[i >> 3] >> (7 - (i & 7)) & 1));
    };
    if (packed) {  // whole bytes, between the bits before the first and after the last
      for (bits_until(std::min(last, (first + 7) / 8 * 8)); i + 8 <= last; i += 8)
        for (int shift = 7; shift >= 0; --shift) body(static_cast<std::size_t>(values[i >> 3] >> shift & 1));
      bits_until(last);
    } else {
      for (; i < last; ++i) body(static_cast<std::size_t>(values[i] != 0));
    }
  }
};

// Appends rows to those that go left or to those that go right. Both must have room for all rows of the node.
struct Partition {
  const std::int32_t* own;
  std::int32_t *left, *right;

  void one_by_one(const Assignments& assignments, std::size_t first, std::size_t count) {
    assignments.each(first, count, [&](std::size_t is_left) {
      *left = *right = *own++;
      left += is_left;
      right += 1 - is_left;
    });
  }

#ifdef VEILBOOST_COMPACT
  // For every byte the places of its bits that are 1, lowest first: eight rows are moved together.
  struct Places {
    std::array<std::uint64_t, 256> of{};
    std::array<std::uint8_t, 256> reversed{};
    Places() {
      for (std::size_t byte = 0; byte < 256; ++byte)
        for (std::uint64_t bit = 0, found = 0; bit < 8; ++bit) {
          if (!(byte >> bit & 1)) continue;
          of[byte] |= bit << (8 * found++);
          reversed[byte] = static_cast<std::uint8_t>(reversed[byte] | 0x80 >> bit);
        }
    }
  };

  __attribute__((target("avx2,popcnt"))) void by_eight(const Assignments& assignments, std::size_t first, std::size_t eights) {
    static const Places places;
    const std::uint8_t* value = assignments.values + (assignments.packed ? first / 8 : first);
    for (std::size_t k = 0; k < eights; ++k) {
      std::size_t mask;  // bit i: whether row i of these eight goes left
      if (assignments.packed) {
        mask = places.reversed[*value++];
      } else {
        const __m128i zero = _mm_cmpeq_epi8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(value)), _mm_setzero_si128());
        mask = ~static_cast<std::size_t>(_mm_movemask_epi8(zero)) & 0xff;
        value += 8;
      }
      const __m256i rows = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(own));
      const auto put = [&](std::int32_t* to, std::uint64_t which) __attribute__((target("avx2,popcnt"))) {
        const __m256i order = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(which)));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permutevar8x32_epi32(rows, order));
      };
      put(left, places.of[mask]);
      put(right, places.of[mask ^ 0xff]);
      const std::size_t lefts = static_cast<std::size_t>(_mm_popcnt_u32(static_cast<unsigned>(mask)));
      own += 8;
      left += lefts;
      right += 8 - lefts;
    }
  }
#endif

  void add(const Assignments& assignments, std::size_t first, std::size_t count) {
#ifdef VEILBOOST_COMPACT
    static const bool kWide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt");
    const std::size_t head = assignments.packed ? -first & 7 : 0;
    if (kWide && count >= head + 8) {
      const std::size_t eights = (count - head) / 8;
      one_by_one(assignments, first, head);
      by_eight(assignments, first + head, eights);
      first += head + 8 * eights;
      count -= head + 8 * eights;
    }
#endif
    one_by_one(assignments, first, count);
  }
};

// Stable partition of each node's rows into left then right child; fills the children's rows and where each starts. The
// assignments of node k are in parts[part[k]], which are packed if `packed` says so.
void split_rows(In1<std::int32_t> rows, In1<std::int64_t> begin, In1<std::int64_t> end, In1<std::int32_t> part_of,
                const std::vector<Kept<const std::uint8_t, 1>>& parts, const std::vector<bool>& packed,
                Out1<std::int32_t> children, Out1<std::int64_t> starts, std::size_t threads) {
  const RowRuns runs(begin, end, 4, threads);
  const std::size_t nodes = runs.nodes(), all = runs.rows();
  if (children.shape(0) != all || starts.shape(0) != 2 * nodes + 1 || part_of.shape(0) != nodes || packed.size() != parts.size())
    throw std::invalid_argument("split_rows: shapes do not fit together");
  std::vector<std::size_t> sizes(parts.size(), 0), first(nodes);  // where each node begins in its part
  std::vector<Assignments> left(nodes);
  for (std::size_t k = 0; k < nodes; ++k) {
    const std::size_t part = static_cast<std::size_t>(part_of.data()[k]);
    if (part >= parts.size()) throw std::invalid_argument("split_rows: no such part");
    left[k] = {parts[part].data(), packed[part]};
    first[k] = sizes[part];
    sizes[part] += static_cast<std::size_t>(end.data()[k] - begin.data()[k]);
  }
  for (std::size_t part = 0; part < parts.size(); ++part)
    if (parts[part].shape(0) != (packed[part] ? (sizes[part] + 7) / 8 : sizes[part]))
      throw std::invalid_argument("split_rows: assignments of another number of rows");
  if (runs.parts == 1) {  // one pass: right children are put aside until all left children of their node are there
    const std::unique_ptr<std::int32_t[]> aside(new std::int32_t[all]);
    std::int32_t* next = children.data();
    for (std::size_t k = 0; k < nodes; ++k) {
      Partition rows_of{rows.data() + begin.data()[k], next, aside.get()};
      rows_of.add(left[k], first[k], static_cast<std::size_t>(end.data()[k] - begin.data()[k]));
      starts.data()[2 * k] = next - children.data();
      starts.data()[2 * k + 1] = rows_of.left - children.data();
      next = std::copy(aside.get(), rows_of.right, rows_of.left);
    }
    starts.data()[2 * nodes] = next - children.data();
    return;
  }
  const auto each_of_run = [&](std::size_t k, std::size_t from, std::size_t to, auto body) {
    left[k].each(first[k] + from - static_cast<std::size_t>(begin.data()[k]), to - from, body);
  };
  std::vector<std::size_t> lefts(runs.parts * nodes, 0), rights(runs.parts * nodes, 0);  // rows of each run
  runs.each([&](std::size_t part, std::size_t k, std::size_t from, std::size_t to, std::size_t) {
    std::size_t count = 0;
    each_of_run(k, from, to, [&](std::size_t is_left) { count += is_left; });
    lefts[part * nodes + k] = count;
    rights[part * nodes + k] = to - from - count;
  });
  std::size_t placed = 0;
  for (std::size_t k = 0; k < nodes; ++k) {  // from the number of rows of each run to the place of its first
    starts.data()[2 * k] = static_cast<std::int64_t>(placed);
    for (std::size_t at = k; at < lefts.size(); at += nodes) placed += std::exchange(lefts[at], placed);
    starts.data()[2 * k + 1] = static_cast<std::int64_t>(placed);
    for (std::size_t at = k; at < rights.size(); at += nodes) placed += std::exchange(rights[at], placed);
  }
  starts.data()[2 * nodes] = static_cast<std::int64_t>(placed);
  runs.each([&](std::size_t part, std::size_t k, std::size_t from, std::size_t to, std::size_t) {
    std::size_t to_left = lefts[part * nodes + k], to_right = rights[part * nodes + k];
    const std::int32_t* own = rows.data() + from;
    std::int32_t* out = children.data();
    each_of_run(k, from, to, [&](std::size_t is_left) {
      out[is_left ? to_left : to_right] = *own++;
      to_left += is_left;
      to_right += 1 - is_left;
    });
  });
}

// margin (groups, rows): every row of node k gets weight[k] added in its group.
void add_to_rows(In1<std::int32_t> rows, In1<std::int64_t> begin, In1<std::int64_t> end, In1<std::int32_t> group,
                 In1<float> weight, Out2<double> margin, std::size_t threads) {
  const RowRuns runs(begin, end, 4, threads);
  if (group.shape(0) != runs.nodes() || weight.shape(0) != runs.nodes())
    throw std::invalid_argument("add_to_rows: shapes do not fit together");
  runs.each([&](std::size_t, std::size_t k, std::size_t from, std::size_t to, std::size_t) {
    double* own = margin.data() + static_cast<std::size_t>(group.data()[k]) * margin.shape(1);
    const double value = weight.data()[k];
    for (std::size_t i = from; i < to; ++i) own[rows.data()[i]] += value;
  });
}

// The rows of selected nodes form runs: take(whole) -> part gathers the runs, put(part) -> whole writes them back.
void take_nodes(In1<std::int64_t> counts, In1<bool> chosen, In1<std::uint8_t> whole, Out1<std::uint8_t> part) {
  const std::uint8_t* from = whole.data();
  const std::uint8_t* const end = from + whole.shape(0);
  std::uint8_t* to = part.data();
  std::uint8_t* const room = to + part.shape(0);
  for (std::size_t k = 0; k < counts.shape(0); ++k) {
    const std::int64_t count = counts.data()[k];
    if (count > end - from || (chosen.data()[k] && count > room - to))
      throw std::invalid_argument("take_nodes: shapes do not fit together");
    if (chosen.data()[k]) to = std::copy_n(from, count, to);
    from += count;
  }
}

void put_nodes(In1<std::int64_t> counts, In1<bool> chosen, In1<std::uint8_t> part, Out1<std::uint8_t> whole) {
  const std::uint8_t* from = part.data();
  const std::uint8_t* const end = from + part.shape(0);
  std::uint8_t* to = whole.data();
  std::uint8_t* const room = to + whole.shape(0);
  for (std::size_t k = 0; k < counts.shape(0); ++k) {
    const std::int64_t count = counts.data()[k];
    if (count > room - to || (chosen.data()[k] && count > end - from))
      throw std::invalid_argument("put_nodes: shapes do not fit together");
    if (chosen.data()[k]) {
      std::copy_n(from, count, to);
      from += count;
    }
    to += count;
  }
}

}  // namespace

void bind_rows(nb::module_& module) {
  module.def("route_u8", &route<std::uint8_t>, nb::call_guard<nb::gil_scoped_release>());
  module.def("route_u16", &route<std::uint16_t>, nb::call_guard<nb::gil_scoped_release>());
  module.def("add_to_rows", &add_to_rows, nb::call_guard<nb::gil_scoped_release>());
  module.def("take_nodes", &take_nodes, nb::call_guard<nb::gil_scoped_release>());
  module.def("put_nodes", &put_nodes, nb::call_guard<nb::gil_scoped_release>());
  module.def("split_rows", &split_rows, nb::call_guard<nb::gil_scoped_release>());
}
