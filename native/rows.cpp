// Left/right assignments of rows, and rows grouped by node after a split.
#include <algorithm>
#include <memory>
#include <stdexcept>

#include "kernels.h"

namespace {

// left[i] = goes_left[k][bin of row i in column[k]] for the rows of each node k, node after node.
template <class Bin>
void route(In2<Bin> bins, In1<std::int32_t> rows, In1<std::int64_t> begin, In1<std::int64_t> end,
           In1<std::int32_t> column, In2<std::uint8_t> goes_left, Out1<std::uint8_t> left) {
  const std::size_t width = bins.shape(1), nodes = begin.shape(0), table_size = goes_left.shape(1);
  std::size_t all = 0;
  for (std::size_t k = 0; k < nodes; ++k) {
    all += static_cast<std::size_t>(end.data()[k] - begin.data()[k]);
    if (static_cast<std::size_t>(column.data()[k]) >= width) throw std::invalid_argument("route: no such column");
  }
  if (left.shape(0) != all || column.shape(0) != nodes || goes_left.shape(0) != nodes)
    throw std::invalid_argument("route: shapes do not fit together");
  std::uint8_t* out = left.data();
  for (std::size_t k = 0; k < nodes; ++k) {
    const std::uint8_t* table = goes_left.data() + k * table_size;
    const Bin* values = bins.data() + column.data()[k];
    for (std::int64_t i = begin.data()[k]; i < end.data()[k]; ++i)
      *out++ = table[values[static_cast<std::size_t>(rows.data()[i]) * width]];
  }
}

// Stable partition of each node's rows into left then right child; returns nothing, fills rows and child starts.
void split_rows(In1<std::int32_t> rows, In1<std::int64_t> begin, In1<std::int64_t> end, In1<std::uint8_t> left,
                Out1<std::int32_t> children, Out1<std::int64_t> starts) {
  const std::size_t nodes = begin.shape(0);
  std::size_t all = 0;
  for (std::size_t k = 0; k < nodes; ++k) all += static_cast<std::size_t>(end.data()[k] - begin.data()[k]);
  if (left.shape(0) != all || children.shape(0) != all || starts.shape(0) != 2 * nodes + 1)
    throw std::invalid_argument("split_rows: shapes do not fit together");
  const std::uint8_t* bit = left.data();
  const std::unique_ptr<std::int32_t[]> aside(new std::int32_t[all]);  // buffer for the rows of right children
  std::int64_t placed = 0;
  for (std::size_t k = 0; k < nodes; ++k) {
    const std::size_t count = static_cast<std::size_t>(end.data()[k] - begin.data()[k]);
    const std::int32_t* in = rows.data() + begin.data()[k];
    std::int32_t* out = children.data() + placed;
    std::size_t lefts = 0, rights = 0;
    for (std::size_t i = 0; i < count; ++i) {  // branch-free: every row is written to both, one write counts
      const std::size_t goes_left = bit[i] != 0;
      out[lefts] = in[i];
      aside[rights] = in[i];
      lefts += goes_left;
      rights += 1 - goes_left;
    }
    std::copy_n(aside.get(), rights, out + lefts);
    starts.data()[2 * k] = placed;
    starts.data()[2 * k + 1] = placed + static_cast<std::int64_t>(lefts);
    placed += static_cast<std::int64_t>(count);
    bit += count;
  }
  starts.data()[2 * nodes] = placed;
}

// margin (groups, rows): every row of node k gets weight[k] added in its group.
void add_to_rows(In1<std::int32_t> rows, In1<std::int64_t> begin, In1<std::int64_t> end, In1<std::int32_t> group,
                 In1<float> weight, Out2<double> margin) {
  const std::size_t nodes = begin.shape(0), width = margin.shape(1);
  if (end.shape(0) != nodes || group.shape(0) != nodes || weight.shape(0) != nodes)
    throw std::invalid_argument("add_to_rows: shapes do not fit together");
  for (std::size_t k = 0; k < nodes; ++k) {
    double* own = margin.data() + static_cast<std::size_t>(group.data()[k]) * width;
    const double value = weight.data()[k];
    for (std::int64_t i = begin.data()[k]; i < end.data()[k]; ++i) own[rows.data()[i]] += value;
  }
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
