// Left/right assignments of rows, and rows grouped by node after a split.
#include <memory>
#include <utility>

#include "kernels.h"

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
      const std::int32_t* own = rows.data() + begin.data()[k];
      std::int32_t* right = aside.get();
      starts.data()[2 * k] = next - children.data();
      left[k].each(first[k], static_cast<std::size_t>(end.data()[k] - begin.data()[k]), [&](std::size_t is_left) {
        *next = *right = *own++;
        next += is_left;
        right += 1 - is_left;
      });
      starts.data()[2 * k + 1] = next - children.data();
      next = std::copy(aside.get(), right, next);
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
