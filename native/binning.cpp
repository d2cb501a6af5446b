// Values to bins: bin = number of cuts <= value, so that "bin <= c" and "value < cuts[c]" are equivalent.
#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "kernels.h"

namespace {

// Branch-free upper bound.
std::size_t count_not_above(const float* cuts, std::size_t count, float value) {
  const float* base = cuts;
  while (count > 1) {
    const std::size_t half = count / 2;
    base += (base[half - 1] <= value) * half;
    count -= half;
  }
  return static_cast<std::size_t>(base - cuts) + (count == 1 && *base <= value);
}

template <class Bin>
void bin_columns(const std::vector<Kept<const float, 1>>& columns, const std::vector<Kept<const float, 1>>& cuts,
                 Out2<Bin> bins, std::size_t first_column, std::size_t threads) {
  const std::size_t rows = bins.shape(0), width = bins.shape(1), count = columns.size();
  if (cuts.size() != count || first_column + count > width) throw std::invalid_argument("columns and cuts differ");
  for (const auto& column : columns)
    if (column.shape(0) != rows) throw std::invalid_argument("a column has another number of rows");
  // Blocks of rows keep the block of the row-major output in cache while its columns are filled one by one.
  constexpr std::size_t kBlock = 2048;
  const std::size_t parts = useful_threads(rows * count, threads);
  in_parallel(parts, [&](std::size_t part) {
    const std::size_t begin = rows * part / parts, end = rows * (part + 1) / parts;
    for (std::size_t block = begin; block < end; block += kBlock) {
      const std::size_t stop = std::min(block + kBlock, end);
      for (std::size_t j = 0; j < count; ++j) {
        const float* values = columns[j].data();
        const float* edges = cuts[j].data();
        const std::size_t edge_count = cuts[j].shape(0);
        const Bin missing = static_cast<Bin>(edge_count + 1);
        Bin* out = bins.data() + first_column + j;
        for (std::size_t row = block; row < stop; ++row) {
          const float value = values[row];
          out[row * width] =
              std::isnan(value) ? missing : static_cast<Bin>(count_not_above(edges, edge_count, value));
        }
      }
    }
  });
}

}  // namespace

void bind_binning(nb::module_& module) {
  module.def("bin_columns_u8", &bin_columns<std::uint8_t>, nb::call_guard<nb::gil_scoped_release>());
  module.def("bin_columns_u16", &bin_columns<std::uint16_t>, nb::call_guard<nb::gil_scoped_release>());
}
