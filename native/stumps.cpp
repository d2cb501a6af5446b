// Trees of depth 1: margins change by the bin of one column, and two columns are summed at a time.

#include "kernels.h"

namespace {

// margin[i] += step[bins[i, column]]
template <class Bin>
void add_by_bin(In2<Bin> bins, std::size_t column, In1<double> step, Out1<double> margin, std::size_t threads) {
  const std::size_t rows = bins.shape(0), width = bins.shape(1);
  if (column >= width || margin.shape(0) != rows) throw std::invalid_argument("add_by_bin: shapes do not fit together");
  const std::size_t parts = useful_threads(rows, threads);
  in_parallel(parts, [&](std::size_t part) {
    const Bin* bin = bins.data() + column;
    for (std::size_t i = rows * part / parts; i < rows * (part + 1) / parts; ++i)
      margin.data()[i] += step.data()[std::min<std::size_t>(bin[i * width], step.shape(0) - 1)];
  });
}

// Sums of (g, h) for all rows, for two columns at a time. A row's cell in a pair of columns, a * widths[1] + b,
// takes one addition instead of two; the sums of a and of b are the row and column sums of the cells. g and h are not
// negative and fit into `bits` bits, so both share one word as long as at most 2^(32 - bits) - 1 rows are added to it.
// The caller has checked all cells, once for all rounds.
void pair_sums(In2<std::uint16_t> cells, In2<std::int32_t> widths, In2<std::int32_t> pairs, std::size_t bits,
                 Out2<std::int64_t> out, std::size_t threads) {
  const std::size_t rows = cells.shape(0), column_pairs = cells.shape(1);
  if (widths.shape(0) != column_pairs || widths.shape(1) != 2 || pairs.shape(0) != rows || pairs.shape(1) != 2 ||
      out.shape(1) != 2 || bits > 24)
    throw std::invalid_argument("pair_sums: shapes do not fit together");
  std::vector<std::size_t> first(column_pairs + 1, 0), slot(column_pairs + 1, 0);
  for (std::size_t j = 0; j < column_pairs; ++j) {
    const std::size_t a = static_cast<std::size_t>(widths.data()[2 * j]);
    const std::size_t b = static_cast<std::size_t>(widths.data()[2 * j + 1]);  // 0: a column without a partner
    first[j + 1] = first[j] + a * (b ? b : 1);
    slot[j + 1] = slot[j] + a + b;
  }
  if (out.shape(0) != slot[column_pairs]) throw std::invalid_argument("pair_sums: shapes do not fit together");
  const std::size_t most = (std::size_t{1} << (32 - bits)) - 1;
  const std::size_t parts = useful_threads(rows * column_pairs, threads);
  std::vector<std::vector<std::int64_t>> found(parts);
  in_parallel(parts, [&](std::size_t part) {
    std::vector<std::uint64_t> words(first[column_pairs]), sums(slot[column_pairs]);
    std::vector<std::int64_t>& total = found[part];
    total.assign(2 * slot[column_pairs], 0);
    const std::size_t end = rows * (part + 1) / parts;
    for (std::size_t begin = rows * part / parts; begin < end; begin += most) {
      std::fill(words.begin(), words.end(), 0);
      std::fill(sums.begin(), sums.end(), 0);
      const std::size_t stop = std::min(end, begin + most);
      for (std::size_t i = begin; i < stop; ++i) {
        const std::uint64_t word = (static_cast<std::uint64_t>(pairs.data()[2 * i]) << 32) +
                                   static_cast<std::uint64_t>(pairs.data()[2 * i + 1]);
        const std::uint16_t* cell = cells.data() + i * column_pairs;
        for (std::size_t j = 0; j < column_pairs; ++j) words[first[j] + cell[j]] += word;
      }
      for (std::size_t j = 0; j < column_pairs; ++j) {
        const std::size_t a = static_cast<std::size_t>(widths.data()[2 * j]);
        const std::size_t b = static_cast<std::size_t>(widths.data()[2 * j + 1]);
        const std::uint64_t* from = words.data() + first[j];
        std::uint64_t *one = sums.data() + slot[j], *other = one + a;
        for (std::size_t k = 0; k < a; ++k, from += b ? b : 1) {
          if (!b) one[k] += from[0];
          for (std::size_t l = 0; l < b; ++l) one[k] += from[l];
          for (std::size_t l = 0; l < b; ++l) other[l] += from[l];
        }
      }
      for (std::size_t s = 0; s < slot[column_pairs]; ++s) {
        total[2 * s] += static_cast<std::int64_t>(sums[s] >> 32);
        total[2 * s + 1] += static_cast<std::int64_t>(sums[s] & 0xffffffffu);
      }
    }
  });
  std::fill(out.data(), out.data() + 2 * slot[column_pairs], 0);
  for (const auto& part : found)
    for (std::size_t i = 0; i < part.size(); ++i) out.data()[i] += part[i];
}

}  // namespace

void bind_stumps(nb::module_& module) {
  module.def("pair_sums", &pair_sums, nb::call_guard<nb::gil_scoped_release>());
  module.def("add_by_bin_u8", &add_by_bin<std::uint8_t>, nb::call_guard<nb::gil_scoped_release>());
  module.def("add_by_bin_u16", &add_by_bin<std::uint16_t>, nb::call_guard<nb::gil_scoped_release>());
}
