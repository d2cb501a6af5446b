// Left/right assignments of rows, and rows grouped by node after a split.
#include <array>
#include <cstring>

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
  if (left.shape(0) != runs.rows || column.shape(0) != runs.nodes || goes_left.shape(0) != runs.nodes)
    throw std::invalid_argument("route: shapes do not fit together");
  const std::int64_t step = bins.stride(0);
  runs.each([&](const RowRuns::Run& run, std::size_t) {
    const std::uint8_t* table = goes_left.data() + run.node * goes_left.shape(1);
    const Bin* values = bins.data() + column.data()[run.node] * bins.stride(1);
    const std::int32_t* own = rows.data();
    std::uint8_t* __restrict out = left.data() + run.place;
    if (step == 1)
      for (std::size_t i = run.from; i < run.to; ++i) *out++ = table[values[own[i]]];
    else
      for (std::size_t i = run.from; i < run.to; ++i) *out++ = table[values[own[i] * step]];
  });
}

// Left/right assignments of the rows of some nodes, node after node: a byte or a bit each.
struct Assignments {
  const std::uint8_t* values;
  bool packed;

  // How many of `count` rows from the one at `first` go left.
  std::size_t lefts(std::size_t first, std::size_t count) const {
    const std::size_t last = first + count;
    std::size_t found = 0;
    if (packed) {  // whole words, between the bits before the first and after the last
      const auto bits_of = [&](std::size_t some) { each(first, some, [&](std::size_t is_left) { found += is_left; }); };
      const std::size_t head = std::min(count, -first & 7);
      bits_of(head);
      for (first += head; first + 64 <= last; first += 64) {
        std::uint64_t bits;
        std::memcpy(&bits, values + first / 8, sizeof bits);
        found += static_cast<std::size_t>(__builtin_popcountll(bits));
      }
      bits_of(last - first);
      return found;
    }
    constexpr std::size_t kSmall = 255;  // so many are counted in a byte, many bytes at a time
    while (first < last) {
      std::uint8_t some = 0;
      for (const std::size_t end = std::min(last, first + kSmall); first < end; ++first)
        some = static_cast<std::uint8_t>(some + (values[first] != 0));
      found += some;
    }
    return found;
  }

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

// Stores the rows of a run, in order, in the room for those that go left and in the room for those that go right.
struct Partition {
  std::int32_t *left, *left_end, *right, *right_end;

  void one_by_one(const std::int32_t* own, const Assignments& assignments, std::size_t first, std::size_t count) {
    assignments.each(first, count, [&](std::size_t is_left) { *(is_left ? left++ : right++) = *own++; });
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

  // Vectors are stored whole, so that the last rows of a room are stored one by one: what follows is another run's.
  __attribute__((target("avx2,popcnt"))) void by_eight(const std::int32_t* own, const Assignments& assignments,
                                                       std::size_t first, std::size_t eights) {
    static const Places places;
    for (const std::size_t end = first + 8 * eights; first < end; first += 8, own += 8) {
      if (left_end - left < 8 || right_end - right < 8) {
        one_by_one(own, assignments, first, 8);
        continue;
      }
      std::size_t mask;  // bit i: whether row i of these eight goes left
      if (assignments.packed) {
        mask = places.reversed[assignments.values[first / 8]];
      } else {
        const __m128i values = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(assignments.values + first));
        mask = ~static_cast<std::size_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(values, _mm_setzero_si128()))) & 0xff;
      }
      const __m256i rows = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(own));
      const auto put = [&](std::int32_t* to, std::uint64_t which) __attribute__((target("avx2,popcnt"))) {
        const __m256i order = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(which)));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permutevar8x32_epi32(rows, order));
      };
      put(left, places.of[mask]);
      put(right, places.of[mask ^ 0xff]);
      const std::size_t lefts = static_cast<std::size_t>(_mm_popcnt_u32(static_cast<unsigned>(mask)));
      left += lefts;
      right += 8 - lefts;
    }
  }
#endif

  void add(const std::int32_t* own, const Assignments& assignments, std::size_t first, std::size_t count) {
#ifdef VEILBOOST_COMPACT
    static const bool kWide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt");
    const std::size_t head = assignments.packed ? -first & 7 : 0;
    if (kWide && count >= head + 8) {
      const std::size_t whole = (count - head) / 8 * 8;
      one_by_one(own, assignments, first, head);
      by_eight(own + head, assignments, first + head, whole / 8);
      own += head + whole;
      first += head + whole;
      count -= head + whole;
    }
#endif
    one_by_one(own, assignments, first, count);
  }
};

// Stable partition of each node's rows into left then right child; fills the children's rows and where each starts. The
// assignments of node k are in parts[part[k]], which are packed if `packed` says so.
void split_rows(In1<std::int32_t> rows, In1<std::int64_t> begin, In1<std::int64_t> end, In1<std::int32_t> part_of,
                const std::vector<Kept<const std::uint8_t, 1>>& parts, const std::vector<bool>& packed,
                Out1<std::int32_t> children, Out1<std::int64_t> starts, std::size_t threads) {
  const RowRuns runs(begin, end, 4, threads);
  const std::size_t nodes = runs.nodes;
  if (children.shape(0) != runs.rows || starts.shape(0) != 2 * nodes + 1 || part_of.shape(0) != nodes || packed.size() != parts.size())
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
  const auto place_of = [&](const RowRuns::Run& run) {  // of its first row in its part
    return first[run.node] + run.from - static_cast<std::size_t>(begin.data()[run.node]);
  };
  // Of each run: how many rows go left, and where the first rows that go left and right are stored.
  std::vector<std::size_t> lefts(runs.runs.size()), left_at(runs.runs.size()), right_at(runs.runs.size());
  for (const RowRuns::Run& run : runs.runs) lefts[run.number] = left[run.node].lefts(place_of(run), run.rows());
  std::size_t placed = 0;
  for (std::size_t k = 0, next = 0; k < nodes; ++k) {
    const std::size_t own = next;
    while (next < runs.runs.size() && runs.runs[next].node == k) ++next;
    starts.data()[2 * k] = static_cast<std::int64_t>(placed);
    for (std::size_t at = own; at < next; ++at) {
      left_at[at] = placed;
      placed += lefts[at];
    }
    starts.data()[2 * k + 1] = static_cast<std::int64_t>(placed);
    for (std::size_t at = own; at < next; ++at) {
      right_at[at] = placed;
      placed += runs.runs[at].rows() - lefts[at];
    }
  }
  starts.data()[2 * nodes] = static_cast<std::int64_t>(placed);
  runs.each([&](const RowRuns::Run& run, std::size_t) {
    std::int32_t *to_left = children.data() + left_at[run.number], *to_right = children.data() + right_at[run.number];
    Partition room{to_left, to_left + lefts[run.number], to_right, to_right + run.rows() - lefts[run.number]};
    room.add(rows.data() + run.from, left[run.node], place_of(run), run.rows());
  });
}

// margin (groups, rows): every row of node k gets weight[k] added in its group.
void add_to_rows(In1<std::int32_t> rows, In1<std::int64_t> begin, In1<std::int64_t> end, In1<std::int32_t> group,
                 In1<float> weight, Out2<double> margin, std::size_t threads) {
  const RowRuns runs(begin, end, 4, threads);
  if (group.shape(0) != runs.nodes || weight.shape(0) != runs.nodes)
    throw std::invalid_argument("add_to_rows: shapes do not fit together");
  runs.each([&](const RowRuns::Run& run, std::size_t) {
    double* own = margin.data() + static_cast<std::size_t>(group.data()[run.node]) * margin.shape(1);
    const double value = weight.data()[run.node];
    for (std::size_t i = run.from; i < run.to; ++i) own[rows.data()[i]] += value;
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
