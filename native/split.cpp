// The loss reduction of every candidate split, from bin sums.
//
// A feature with `b` value bins (and one more slot for missing values, if any) offers at slot c:
//   numeric  bins 0..c go left;
//   one-hot  bin c goes left, the others right;
//   sets     the c+1 bins that come first when ordered by leaf weight go left.
// Each with missing values right (direction 0) and, if there are any, left (direction 1).
#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels.h"

namespace {

struct Sums {
  std::int64_t g, h;
};

struct Regularisation {
  double g_unit, h_unit, lambda, alpha, min_child_weight, max_delta_step;

  double shrunk(double g) const {  // soft threshold of the L1 term
    if (alpha == 0.0) return g;
    if (g > alpha) return g - alpha;
    if (g < -alpha) return g + alpha;
    return std::copysign(0.0, g);
  }
  double weight(double g, double h) const {
    const double denominator = h + lambda;
    if (denominator <= 0.0) return 0.0;
    const double w = -shrunk(g) / denominator;
    return max_delta_step > 0.0 ? std::clamp(w, -max_delta_step, max_delta_step) : w;
  }
  double score(double g, double h) const {
    const double denominator = h + lambda;
    if (denominator <= 0.0) return 0.0;
    if (max_delta_step == 0.0) {
      const double t = shrunk(g);
      return t * t / denominator;
    }
    const double w = weight(g, h);
    return -(2.0 * g * w + denominator * w * w + 2.0 * alpha * std::fabs(w));
  }
  double score(Sums s) const { return score(s.g * g_unit, s.h * h_unit); }
  // The weight within bounds, and the score of a leaf with this weight.
  double weight(Sums s, const double* bounds) const {
    return std::clamp(weight(s.g * g_unit, s.h * h_unit), bounds[0], bounds[1]);
  }
  double score(Sums s, double w) const {
    const double denominator = s.h * h_unit + lambda;
    return denominator <= 0.0 ? 0.0 : -(2.0 * s.g * g_unit * w + denominator * w * w + 2.0 * alpha * std::fabs(w));
  }
  bool enough(Sums s) const { return s.h > 0 && s.h * h_unit >= min_child_weight; }
};

// Candidates of a feature, in a form that the compiler turns into vectors: the sums of both children as doubles, then the
// gains, minus infinity if a child has too small a hessian.
struct Batch {
  std::vector<double> left_g, left_h, right_g, right_h, gain;

  void resize(std::size_t count) {
    for (auto* values : {&left_g, &left_h, &right_g, &right_h, &gain}) values->resize(count);
  }
  void put(std::size_t c, Sums left, Sums all) {
    left_g[c] = static_cast<double>(left.g);
    left_h[c] = static_cast<double>(left.h);
    right_g[c] = static_cast<double>(all.g - left.g);
    right_h[c] = static_cast<double>(all.h - left.h);
  }
};

// The same values as `Regularisation::score` and `enough` give, if weights have neither an L1 term nor a limit.
VEILBOOST_WIDE void gains_of(const Regularisation& reg, double parent, std::size_t count, const double* left_g,
                             const double* left_h, const double* right_g, const double* right_h, double* __restrict gain) {
  const double g_unit = reg.g_unit, h_unit = reg.h_unit, lambda = reg.lambda, least = reg.min_child_weight;
  for (std::size_t c = 0; c < count; ++c) {
    const double gl = left_g[c] * g_unit, hl = left_h[c] * h_unit, gr = right_g[c] * g_unit, hr = right_h[c] * h_unit;
    const double left = hl + lambda <= 0.0 ? 0.0 : gl * gl / (hl + lambda);
    const double right = hr + lambda <= 0.0 ? 0.0 : gr * gr / (hr + lambda);
    const bool enough = (left_h[c] > 0.0) & (hl >= least) & (right_h[c] > 0.0) & (hr >= least);
    gain[c] = enough ? left + right - parent : -std::numeric_limits<double>::infinity();
  }
}

constexpr std::uint8_t kNumeric = 0, kOneHot = 1;

// What limits the candidates of a node.
//
// `allowed` (nodes, features) is 0 where a node may not use a feature; it is empty if it may use all.
//
// `cat_threshold`: of a feature with more categories, a split by a set lists fewer than this, as in XGBoost. It lists
// the categories from one end of their order, and missing values go to the other side: so the first c + 1 of n categories
// go left if c + 1 < cat_threshold, and missing values go right; or if n - c - 1 < cat_threshold, and missing values go
// left. Without missing values, one of the two is enough.
//
// `bounds` (nodes, 2), empty if no feature has a direction: the weights of a node and of its children stay within them,
// and of a split by a feature of direction 1 (-1) the left (right) weight must not be the larger one. A split between
// present and missing values may have them in any order.
struct Limits {
  In2<std::uint8_t> allowed;
  In1<std::int8_t> direction;
  In2<double> bounds;
  std::size_t cat_threshold;

  bool fit(std::size_t nodes, std::size_t features) const {
    return (allowed.shape(0) == 0 || (allowed.shape(0) == nodes && allowed.shape(1) == features)) &&
           (bounds.shape(0) == 0 || (bounds.shape(0) == nodes && bounds.shape(1) == 2 && direction.shape(0) == features));
  }
  bool allow(std::size_t node, std::size_t f) const {
    return allowed.shape(0) == 0 || allowed.data()[node * allowed.shape(1) + f];
  }
  bool listed(std::size_t count, std::size_t rest, int to_left, bool has_missing) const {
    if (!has_missing) return count < cat_threshold || rest < cat_threshold;
    return (to_left ? rest : count) < cat_threshold;
  }
  bool ordered(std::size_t f, double left, double right) const {
    const int way = direction.data()[f];
    return way == 0 || (way > 0 ? left <= right : left >= right);
  }
};

// The candidates of the nodes `open`, which are rows of `sums` and `totals`.
// gains (nodes, slots, 2): -inf if there is no such candidate; not written if it has no nodes.
// best_handle and best_gain: the first largest of each node. order (nodes, slots): for features of kind "sets" the
// bins in the order of their weights, otherwise untouched.
void split_gains(In3<std::int64_t> sums, In1<std::int32_t> offsets, In1<std::uint8_t> missing,
                 In1<std::uint8_t> kind, In2<std::int64_t> totals, In1<std::int64_t> open, double g_unit, double h_unit,
                 double lambda, double alpha, double min_child_weight, double max_delta_step, In2<std::uint8_t> allowed,
                 In1<std::int8_t> direction, In2<double> bounds, std::size_t cat_threshold, Out3<double> gains,
                 Out2<std::int32_t> order, Out1<std::int32_t> best_handle, Out1<double> best_gain,
                 std::size_t threads) {
  const Regularisation reg{g_unit, h_unit, lambda, alpha, min_child_weight, max_delta_step};
  const std::size_t nodes = open.shape(0), slots = sums.shape(1), features = missing.shape(0);
  const bool keep = gains.shape(0) != 0;
  const Limits limits{allowed, direction, bounds, cat_threshold};
  if (sums.shape(2) != 2 || offsets.shape(0) != features + 1 || kind.shape(0) != features ||
      totals.shape(0) != sums.shape(0) || totals.shape(1) != 2 || (keep && gains.shape(0) != nodes) || gains.shape(1) != slots ||
      gains.shape(2) != 2 || order.shape(0) != nodes || order.shape(1) != slots || best_handle.shape(0) != nodes ||
      best_gain.shape(0) != nodes || !limits.fit(nodes, features) ||
      static_cast<std::size_t>(offsets.data()[features]) != slots)
    throw std::invalid_argument("split_gains: shapes do not fit together");
  for (std::size_t k = 0; k < nodes; ++k)
    if (static_cast<std::size_t>(open.data()[k]) >= sums.shape(0)) throw std::invalid_argument("split_gains: no such node");
  if (keep) std::fill_n(gains.data(), nodes * slots * 2, -std::numeric_limits<double>::infinity());
  const std::size_t parts = useful_threads(nodes * slots * 8, threads);
  const auto scored = [&](std::size_t part, auto bounded) {
    const bool in_batches = !bounded && reg.alpha == 0.0 && reg.max_delta_step == 0.0;
    std::vector<double> weights;  // of a feature's bins
    Batch batch;
    for (std::size_t k = nodes * part / parts; k < nodes * (part + 1) / parts; ++k) {
      const std::size_t at = static_cast<std::size_t>(open.data()[k]);
      const Sums all{totals.data()[2 * at], totals.data()[2 * at + 1]};
      const double* bound = bounded ? bounds.data() + 2 * k : nullptr;
      const double parent = bounded ? reg.score(all, reg.weight(all, bound)) : reg.score(all);
      double best = -std::numeric_limits<double>::infinity();
      std::size_t best_at = 0;
      for (std::size_t f = 0; f < features; ++f) {
        if (!limits.allow(k, f)) continue;
        const std::size_t start = static_cast<std::size_t>(offsets.data()[f]);
        const std::size_t width = static_cast<std::size_t>(offsets.data()[f + 1]) - start;
        const std::size_t values = width - missing.data()[f];
        const Sums* bin = reinterpret_cast<const Sums*>(sums.data() + (at * slots + start) * 2);
        double* gain = keep ? gains.data() + (k * slots + start) * 2 : nullptr;
        std::int32_t* sorted = order.data() + k * slots + start;
        const Sums absent = missing.data()[f] ? bin[values] : Sums{0, 0};
        const bool try_left = absent.h != 0 || absent.g != 0;
        const auto note = [&](std::size_t c, int to_left, double value) {
          if (keep) gain[2 * c + to_left] = value;
          if (value > best) {  // candidates are in the order of their handles: the first of equal ones wins
            best = value;
            best_at = 2 * (start + c) + to_left;
          }
        };
        const auto offer = [&](std::size_t c, Sums left, int to_left) {
          const Sums right{all.g - left.g, all.h - left.h};
          if (!reg.enough(left) || !reg.enough(right)) return;
          double value;
          if constexpr (bounded) {
            const double left_weight = reg.weight(left, bound), right_weight = reg.weight(right, bound);
            if (c + 1 != values && !limits.ordered(f, left_weight, right_weight)) return;
            value = reg.score(left, left_weight) + reg.score(right, right_weight) - parent;
          } else {
            value = reg.score(left) + reg.score(right) - parent;
          }
          note(c, to_left, value);
        };
        const auto offer_both = [&](std::size_t c, Sums left) {
          offer(c, left, 0);
          if (try_left) offer(c, Sums{left.g + absent.g, left.h + absent.h}, 1);
        };
        if (kind.data()[f] == kOneHot) {
          for (std::size_t c = 0; c < values; ++c) offer_both(c, bin[c]);
          continue;
        }
        const bool numeric = kind.data()[f] == kNumeric;
        if (numeric && in_batches) {
          const std::size_t ways = try_left ? 2 : 1, count = ways * values;
          batch.resize(count);
          Sums left{0, 0};
          for (std::size_t c = 0; c < values; ++c) {
            left = {left.g + bin[c].g, left.h + bin[c].h};
            batch.put(ways * c, left, all);
            if (try_left) batch.put(ways * c + 1, Sums{left.g + absent.g, left.h + absent.h}, all);
          }
          gains_of(reg, parent, count, batch.left_g.data(), batch.left_h.data(), batch.right_g.data(), batch.right_h.data(),
                   batch.gain.data());
          for (std::size_t i = 0; i < count; ++i) note(i / ways, static_cast<int>(i % ways), batch.gain[i]);
          continue;
        }
        if (!numeric) {
          weights.resize(values);
          for (std::size_t c = 0; c < values; ++c) {
            weights[c] = reg.weight(bin[c].g * reg.g_unit, bin[c].h * reg.h_unit);
            sorted[c] = static_cast<std::int32_t>(c);
          }
          std::stable_sort(sorted, sorted + values, [&](auto a, auto b) { return weights[a] < weights[b]; });
        }
        Sums left{0, 0};
        for (std::size_t c = 0; c < values; ++c) {
          const Sums& next = bin[numeric ? c : static_cast<std::size_t>(sorted[c])];
          left.g += next.g;
          left.h += next.h;
          if (numeric || values <= limits.cat_threshold) {
            offer_both(c, left);
            continue;
          }
          if (limits.listed(c + 1, values - c - 1, 0, try_left)) offer(c, left, 0);
          if (try_left && limits.listed(c + 1, values - c - 1, 1, true))
            offer(c, Sums{left.g + absent.g, left.h + absent.h}, 1);
        }
      }
      best_handle.data()[k] = static_cast<std::int32_t>(best_at);
      best_gain.data()[k] = best;
    }
  };
  if (bounds.shape(0) != 0)
    in_parallel(parts, [&](std::size_t part) { scored(part, std::true_type{}); });
  else
    in_parallel(parts, [&](std::size_t part) { scored(part, std::false_type{}); });
}

// The weight of a leaf with these sums; 0 if the denominator is not positive.
void leaf_weights(In2<std::int64_t> totals, double g_unit, double h_unit, double lambda, double alpha,
                  double max_delta_step, Out1<double> weights) {
  const Regularisation reg{g_unit, h_unit, lambda, alpha, 0.0, max_delta_step};
  if (totals.shape(0) != weights.shape(0) || totals.shape(1) != 2)
    throw std::invalid_argument("leaf_weights: shapes do not fit together");
  for (std::size_t k = 0; k < weights.shape(0); ++k)
    weights.data()[k] = reg.weight(totals.data()[2 * k] * g_unit, totals.data()[2 * k + 1] * h_unit);
}

// The candidates of a layout that handles name.
struct Layout {
  In1<std::int32_t> offsets;
  In1<std::uint8_t> missing, kind;

  Layout(In1<std::int32_t> offsets, In1<std::uint8_t> missing, In1<std::uint8_t> kind)
      : offsets(offsets), missing(missing), kind(kind) {
    if (offsets.shape(0) != missing.shape(0) + 1 || kind.shape(0) != missing.shape(0))
      throw std::invalid_argument("a layout's shapes do not fit together");
  }
  std::int32_t feature_of(std::int32_t handle) const {
    const std::int32_t *first = offsets.data(), *last = first + missing.shape(0);
    if (handle < 0 || handle >> 1 >= *last) throw std::invalid_argument("no such candidate");
    return static_cast<std::int32_t>(std::upper_bound(first, last, handle >> 1) - first) - 1;
  }
};

// For each of some handles, the bins that go left if it splits by a set: bins[starts[k]:starts[k + 1]]. No starts: no
// handle does.
struct Sets {
  const std::int32_t *starts, *bins;

  Sets(const In1<std::int32_t>& starts, const In1<std::int32_t>& bins, std::size_t count)
      : starts(starts.shape(0) ? starts.data() : nullptr), bins(bins.data()) {
    if (!this->starts) return;
    bool fits = starts.shape(0) == count + 1 && starts.data()[0] >= 0;
    for (std::size_t k = 0; fits && k < count; ++k) fits = starts.data()[k] <= starts.data()[k + 1];
    if (!fits || static_cast<std::size_t>(starts.data()[count]) > bins.shape(0))
      throw std::invalid_argument("there is not one set for each handle");
  }
  template <class Body>
  void each(std::size_t k, std::int32_t width, Body body) const {
    for (std::int32_t i = starts ? starts[k] : 0; i < (starts ? starts[k + 1] : 0); ++i) {
      if (bins[i] < 0 || bins[i] >= width) throw std::invalid_argument("no such bin");
      body(bins[i]);
    }
  }
};

// The sets of these handles at rows `nodes` of `order` (see `split_gains`), in increasing order; other handles have
// empty ones. Returns the number of all bins.
std::size_t left_sets(In2<std::int32_t> order, In1<std::int64_t> nodes, In1<std::int32_t> handles,
                      In1<std::int32_t> offsets, In1<std::uint8_t> missing, In1<std::uint8_t> kind,
                      Out1<std::int32_t> starts, Out1<std::int32_t> bins) {
  const Layout layout(offsets, missing, kind);
  const std::size_t count = handles.shape(0);
  if (nodes.shape(0) != count || starts.shape(0) != count + 1 ||
      order.shape(1) != static_cast<std::size_t>(offsets.data()[missing.shape(0)]))
    throw std::invalid_argument("left_sets: shapes do not fit together");
  std::size_t filled = 0;
  for (std::size_t k = 0; k < count; ++k) {
    starts.data()[k] = static_cast<std::int32_t>(filled);
    const std::int32_t f = layout.feature_of(handles.data()[k]);
    if (static_cast<std::size_t>(nodes.data()[k]) >= order.shape(0)) throw std::invalid_argument("left_sets: no such node");
    if (kind.data()[f] == kNumeric || kind.data()[f] == kOneHot) continue;
    const std::size_t size = static_cast<std::size_t>((handles.data()[k] >> 1) - offsets.data()[f] + 1);
    if (filled + size > bins.shape(0)) throw std::invalid_argument("left_sets: shapes do not fit together");
    std::int32_t* own = bins.data() + filled;
    std::copy_n(order.data() + static_cast<std::size_t>(nodes.data()[k]) * order.shape(1) + offsets.data()[f], size, own);
    std::sort(own, own + size);
    filled += size;
  }
  starts.data()[count] = static_cast<std::int32_t>(filled);
  return filled;
}

// Whether every set names value bins of its handle's feature, and each at most once.
bool sets_fit(In1<std::int32_t> handles, In1<std::int32_t> offsets, In1<std::uint8_t> missing, In1<std::uint8_t> kind,
              In1<std::int32_t> starts, In1<std::int32_t> bins) {
  const Layout layout(offsets, missing, kind);
  const Sets sets(starts, bins, handles.shape(0));
  std::vector<std::size_t> last;  // the handle, plus one, that named a bin last
  for (std::size_t k = 0; k < handles.shape(0); ++k) {
    const std::int32_t f = layout.feature_of(handles.data()[k]);
    const std::int32_t values = offsets.data()[f + 1] - offsets.data()[f] - missing.data()[f];
    if (last.size() < static_cast<std::size_t>(values)) last.resize(static_cast<std::size_t>(values), 0);
    for (std::int32_t i = sets.starts ? sets.starts[k] : 0; i < (sets.starts ? sets.starts[k + 1] : 0); ++i) {
      const std::int32_t bin = sets.bins[i];
      if (bin < 0 || bin >= values || last[static_cast<std::size_t>(bin)] == k + 1) return false;
      last[static_cast<std::size_t>(bin)] = k + 1;
    }
  }
  return true;
}

// The split of each handle: its feature, its bin, whether missing values go left, and for every bin of the feature
// whether it goes left.
void splits_of(In1<std::int32_t> handles, In1<std::int32_t> offsets, In1<std::uint8_t> missing,
               In1<std::uint8_t> kind, In1<std::int32_t> set_starts, In1<std::int32_t> set_bins,
               Out1<std::int32_t> feature, Out1<std::int32_t> place, Out1<bool> default_left, Out2<std::uint8_t> left) {
  const Layout layout(offsets, missing, kind);
  const std::size_t count = handles.shape(0), width = left.shape(1);
  const Sets sets(set_starts, set_bins, count);
  if (feature.shape(0) != count || place.shape(0) != count || default_left.shape(0) != count || left.shape(0) != count)
    throw std::invalid_argument("splits_of: shapes do not fit together");
  for (std::size_t k = 0; k < count; ++k) {
    const std::int32_t f = layout.feature_of(handles.data()[k]);
    const std::int32_t at = (handles.data()[k] >> 1) - offsets.data()[f], bins = offsets.data()[f + 1] - offsets.data()[f];
    if (static_cast<std::size_t>(bins) > width) throw std::invalid_argument("splits_of: shapes do not fit together");
    const bool goes_left = missing.data()[f] && (handles.data()[k] & 1);
    std::uint8_t* out = left.data() + k * width;
    std::fill_n(out, width, std::uint8_t{0});
    if (kind.data()[f] == kNumeric)
      std::fill_n(out, at + 1, std::uint8_t{1});
    else if (kind.data()[f] == kOneHot)
      out[at] = 1;
    if (missing.data()[f]) out[bins - 1] = goes_left;
    if (kind.data()[f] != kNumeric && kind.data()[f] != kOneHot) sets.each(k, bins, [&](std::int32_t bin) { out[bin] = 1; });
    feature.data()[k] = f;
    place.data()[k] = at;
    default_left.data()[k] = goes_left;
  }
}

// Sums of the left child of each handle at its node, and how many bins they add up.
void left_sums(In3<std::int64_t> sums, In1<std::int32_t> offsets, In1<std::uint8_t> missing, In1<std::uint8_t> kind,
               In1<std::int64_t> nodes, In1<std::int32_t> handles, In1<std::int32_t> set_starts,
               In1<std::int32_t> set_bins, Out2<std::int64_t> left, Out1<std::int64_t> bins) {
  const Layout layout(offsets, missing, kind);
  const std::size_t count = handles.shape(0);
  const Sets sets(set_starts, set_bins, count);
  if (nodes.shape(0) != count || left.shape(0) != count || left.shape(1) != 2 || bins.shape(0) != count ||
      sums.shape(2) != 2 || sums.shape(1) != static_cast<std::size_t>(offsets.data()[missing.shape(0)]))
    throw std::invalid_argument("left_sums: shapes do not fit together");
  for (std::size_t k = 0; k < count; ++k) {
    const std::int32_t f = layout.feature_of(handles.data()[k]), slot = handles.data()[k] >> 1;
    if (static_cast<std::size_t>(nodes.data()[k]) >= sums.shape(0)) throw std::invalid_argument("left_sums: no such node");
    const Sums* bin = reinterpret_cast<const Sums*>(sums.data()) + static_cast<std::size_t>(nodes.data()[k]) * sums.shape(1);
    Sums all{0, 0};
    std::int64_t added = 0;
    const auto add = [&](std::int32_t at) {
      all = {all.g + bin[at].g, all.h + bin[at].h};
      ++added;
    };
    if (kind.data()[f] == kNumeric)
      for (std::int32_t at = offsets.data()[f]; at <= slot; ++at) add(at);
    else if (kind.data()[f] == kOneHot)
      add(slot);
    else
      sets.each(k, offsets.data()[f + 1] - offsets.data()[f], [&](std::int32_t at) { add(offsets.data()[f] + at); });
    if (missing.data()[f] && (handles.data()[k] & 1)) add(offsets.data()[f + 1] - 1);
    left.data()[2 * k] = all.g;
    left.data()[2 * k + 1] = all.h;
    bins.data()[k] = added;
  }
}

}  // namespace

void bind_split(nb::module_& module) {
  module.def("split_gains", &split_gains, nb::call_guard<nb::gil_scoped_release>());
  module.def("leaf_weights", &leaf_weights, nb::call_guard<nb::gil_scoped_release>());
  module.def("left_sets", &left_sets, nb::call_guard<nb::gil_scoped_release>());
  module.def("sets_fit", &sets_fit, nb::call_guard<nb::gil_scoped_release>());
  module.def("splits_of", &splits_of, nb::call_guard<nb::gil_scoped_release>());
  module.def("left_sums", &left_sums, nb::call_guard<nb::gil_scoped_release>());
}
