// Rows on their way through the trees of a joint model: from node to node at the active party, which knows the trees, and
// at a passive party, which knows its own splits. Rows of a request are few, so all of this runs on one thread.
#include <utility>

#include "kernels.h"

namespace {

// The splits of one party, as in `SplitRecords`, and the values of rows (columns, rows).
struct Splits {
  Splits(const In1<std::int32_t>& feature, const In1<float>& threshold, const In1<bool>& default_left,
         const In1<std::int32_t>& set_of, const In2<bool>& left_sets, const In2<float>& values)
      : count(feature.shape(0)), rows(values.shape(1)), feature_(feature.data()), threshold_(threshold.data()),
        default_left_(default_left.data()), set_of_(set_of.data()), left_sets_(left_sets), values_(values) {
    if (threshold.shape(0) != count || default_left.shape(0) != count || set_of.shape(0) != count)
      throw std::invalid_argument("splits: shapes do not fit together");
  }

  bool goes_left(std::size_t split, std::size_t row) const {
    if (split >= count || row >= rows || static_cast<std::size_t>(feature_[split]) >= values_.shape(0))
      throw std::invalid_argument("goes_left: no such split, column or row");
    const float value = values_.data()[static_cast<std::size_t>(feature_[split]) * rows + row];
    if (value != value) return default_left_[split];
    const std::int32_t set = set_of_[split];
    if (set < 0) return value < threshold_[split];
    if (static_cast<std::size_t>(set) >= left_sets_.shape(0)) throw std::invalid_argument("goes_left: no such set");
    const std::size_t width = left_sets_.shape(1);
    if (!(value >= 0.0f && value < static_cast<float>(width))) return false;  // a category that no split knows
    return left_sets_.data()[static_cast<std::size_t>(set) * width + static_cast<std::size_t>(value)];
  }

  const std::size_t count, rows;

 private:
  const std::int32_t* feature_;
  const float* threshold_;
  const bool* default_left_;
  const std::int32_t* set_of_;
  In2<bool> left_sets_;
  In2<float> values_;
};

// left[i]: whether row rows[i] goes left at split splits[i].
void goes_left(In1<std::int32_t> feature, In1<float> threshold, In1<bool> default_left, In1<std::int32_t> set_of,
               In2<bool> left_sets, In2<float> values, In1<std::int32_t> splits, In1<std::int32_t> rows, Out1<bool> left) {
  const Splits own(feature, threshold, default_left, set_of, left_sets, values);
  if (splits.shape(0) != rows.shape(0) || left.shape(0) != rows.shape(0))
    throw std::invalid_argument("goes_left: shapes do not fit together");
  for (std::size_t i = 0; i < rows.shape(0); ++i)
    left.data()[i] = own.goes_left(static_cast<std::size_t>(splits.data()[i]), static_cast<std::size_t>(rows.data()[i]));
}

// --- the active party: `at` has the node of every pair (tree, row), counted over all trees; leaves have no left child ---

void check_pairs(const Out1<std::int32_t>& at, const std::int64_t* pairs, std::size_t count, std::size_t nodes) {
  for (std::size_t i = 0; i < count; ++i)
    if (static_cast<std::size_t>(pairs[i]) >= at.shape(0) || static_cast<std::size_t>(at.data()[pairs[i]]) >= nodes)
      throw std::invalid_argument("walk: no such pair or node");
}

std::int32_t child_of(const In1<std::int32_t>& left, std::int32_t node, bool goes_left) {
  const std::int32_t child = left.data()[node] + (goes_left ? 0 : 1);
  if (static_cast<std::size_t>(child) >= left.shape(0)) throw std::invalid_argument("walk: no such child");
  return child;
}

// Moves the pairs in `moving` through nodes that have a split of this party. Those that are not at a leaf then come first
// in `moving`, in the same order; returns how many.
std::size_t walk_own(In1<std::int32_t> left, In1<std::int32_t> split_of, In1<std::int32_t> feature, In1<float> threshold,
                     In1<bool> default_left, In1<std::int32_t> set_of, In2<bool> left_sets, In2<float> values,
                     Out1<std::int32_t> at, Out1<std::int64_t> moving) {
  const Splits own(feature, threshold, default_left, set_of, left_sets, values);
  const std::size_t nodes = left.shape(0);
  if (split_of.shape(0) != nodes) throw std::invalid_argument("walk_own: shapes do not fit together");
  check_pairs(at, moving.data(), moving.shape(0), nodes);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < moving.shape(0); ++i) {
    const std::int64_t pair = moving.data()[i];
    std::int32_t node = at.data()[pair];
    for (std::int32_t split; left.data()[node] >= 0 && (split = split_of.data()[node]) >= 0;)
      node = child_of(left, node, own.goes_left(static_cast<std::size_t>(split), static_cast<std::size_t>(pair) % own.rows));
    at.data()[pair] = node;
    moving.data()[kept] = pair;
    kept += left.data()[node] >= 0;
  }
  return kept;
}

// Sorts ascending pairs of `walked` rows by the owner of their node, and by node. `sizes` (owners, 2) receives, for each
// owner, its pairs, and the nodes of their runs: run_starts[k+1] - run_starts[k] of the run that begins at node k.
void sort_pairs(In1<std::int32_t> owner, In1<std::int64_t> run_starts, In1<std::int32_t> at, In1<std::int64_t> moving,
                std::int64_t walked, Out1<std::int64_t> sorted, Out2<std::int64_t> sizes) {
  const std::size_t nodes = owner.shape(0), owners = sizes.shape(0), count = moving.shape(0);
  if (run_starts.shape(0) != nodes + 1 || sorted.shape(0) != count || sizes.shape(1) != 2 || walked < 1)
    throw std::invalid_argument("sort_pairs: shapes do not fit together");
  std::vector<std::pair<std::int32_t, std::int64_t>> by_node(count);  // trees are in order, so each is sorted alone
  for (std::size_t from = 0, to = 0; from < count; from = to) {
    for (; to < count && moving.data()[to] / walked == moving.data()[from] / walked; ++to) {
      const std::size_t pair = static_cast<std::size_t>(moving.data()[to]);
      if (pair >= at.shape(0) || static_cast<std::size_t>(at.data()[pair]) >= nodes ||
          static_cast<std::size_t>(owner.data()[at.data()[pair]]) >= owners)
        throw std::invalid_argument("sort_pairs: no such pair, node or owner");
      by_node[to] = {at.data()[pair], moving.data()[to]};
    }
    std::sort(by_node.begin() + static_cast<std::ptrdiff_t>(from), by_node.begin() + static_cast<std::ptrdiff_t>(to));
  }
  std::fill_n(sizes.data(), 2 * owners, 0);
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t node = by_node[i].first;
    std::int64_t* const size = sizes.data() + 2 * owner.data()[node];
    ++size[0];
    if (i == 0 || by_node[i - 1].first != node) size[1] += run_starts.data()[node + 1] - run_starts.data()[node];
  }
  std::vector<std::int64_t> next(owners, 0);
  for (std::size_t k = 1; k < owners; ++k) next[k] = next[k - 1] + sizes.data()[2 * (k - 1)];
  for (const auto& [node, pair] : by_node) sorted.data()[next[static_cast<std::size_t>(owner.data()[node])]++] = pair;
}

// The routing request for pairs of one owner, sorted by node, with all nodes of their runs; rows are numbered from `low`.
void route_request(In1<std::int64_t> run_starts, In1<std::int32_t> members, In1<std::int32_t> member_after,
                   In1<std::int32_t> tree_of, In1<std::int32_t> node_of, In1<std::int32_t> at, In1<std::int64_t> pairs,
                   std::int64_t walked, std::int64_t low, Out1<std::int32_t> tree, Out1<std::int32_t> node,
                   Out1<std::int32_t> starts, Out1<std::int32_t> rows, Out1<std::int32_t> after) {
  const std::size_t nodes = tree_of.shape(0), asked = tree.shape(0), count = pairs.shape(0);
  if (run_starts.shape(0) != nodes + 1 || member_after.shape(0) != members.shape(0) || node_of.shape(0) != nodes ||
      node.shape(0) != asked || after.shape(0) != asked || starts.shape(0) != asked + 1 || rows.shape(0) != count ||
      walked < 1)
    throw std::invalid_argument("route_request: shapes do not fit together");
  starts.data()[0] = 0;
  std::size_t place = 0;
  for (std::size_t i = 0; i < count;) {
    const std::size_t pair = static_cast<std::size_t>(pairs.data()[i]);
    if (pair >= at.shape(0) || static_cast<std::size_t>(at.data()[pair]) >= nodes)
      throw std::invalid_argument("route_request: no such pair or node");
    const std::int32_t here = at.data()[pair];
    for (; i < count && at.data()[pairs.data()[i]] == here; ++i)
      rows.data()[i] = static_cast<std::int32_t>(pairs.data()[i] % walked + low);
    const std::size_t from = static_cast<std::size_t>(run_starts.data()[here]),
                      to = static_cast<std::size_t>(run_starts.data()[here + 1]), first = place;
    if (from >= to || to > members.shape(0) || place + (to - from) > asked)
      throw std::invalid_argument("route_request: shapes do not fit together");
    for (std::size_t member = from; member < to; ++member, ++place) {
      const std::size_t of = static_cast<std::size_t>(members.data()[member]);
      if (of >= nodes) throw std::invalid_argument("route_request: no such node");
      tree.data()[place] = tree_of.data()[of];
      node.data()[place] = node_of.data()[of];
      after.data()[place] = member == from ? -1 : member_after.data()[member] + 2 * static_cast<std::int32_t>(first);
      starts.data()[place + 1] = static_cast<std::int32_t>(i);
    }
  }
  if (place != asked) throw std::invalid_argument("route_request: shapes do not fit together");
}

// Moves pairs through the nodes of their runs, as the packed answer to a routing request says: bits of all pairs at the
// nodes of the request, then of those that `follow` at another node of their run, and so on. False: it does not fit.
bool follow_route(In1<std::int32_t> left, In1<bool> follows, In1<std::int64_t> pairs, In1<std::uint8_t> packed,
                  Out1<std::int32_t> at) {
  if (follows.shape(0) != left.shape(0)) throw std::invalid_argument("follow_route: shapes do not fit together");
  check_pairs(at, pairs.data(), pairs.shape(0), left.shape(0));
  std::vector<std::int64_t> on(pairs.data(), pairs.data() + pairs.shape(0));
  const std::size_t bits = 8 * packed.shape(0);
  std::size_t used = 0, count = on.size();
  while (count > 0 && used + count <= bits) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count; ++i, ++used) {
      const bool goes_left = packed.data()[used >> 3] >> (7 - (used & 7)) & 1;
      std::int32_t& node = at.data()[on[i]];
      node = child_of(left, node, goes_left);
      on[kept] = on[i];
      kept += follows.data()[node];
    }
    count = kept;
  }
  return count == 0 && packed.shape(0) == (used + 7) / 8;
}

// --- a passive party ------------------------------------------------------------------------------------------------

enum Refused : std::int64_t { kShape = 1, kRows, kNode, kTwice, kAfter, kSame, kPath };

// Answers a routing request with packed bits: the assignments of the requested rows, then those of the rows that reach
// another node of the request, and so on. Returns how many, or the negative number of the reason to refuse.
//
// Splits are sorted by `keys`, (tree << 32) | node. What limits the nodes of a row: split k is of the party's tree
// tree_of[k] and on a level from least[k] to most[k], above max_depth; next (trees, rows) has the least level of a row's
// next node.
std::int64_t answer_route(In1<std::int64_t> keys, In1<std::int32_t> feature, In1<float> threshold, In1<bool> default_left,
                          In1<std::int32_t> set_of, In2<bool> left_sets, In2<float> values, In1<std::int32_t> tree_of,
                          In1<std::uint8_t> least, In1<std::uint8_t> most, std::int32_t max_depth,
                          Out2<std::uint8_t> next, In1<std::int32_t> tree, In1<std::int32_t> node, In1<std::int32_t> starts, In1<std::int32_t> rows,
                          In1<std::int32_t> after, Out1<std::uint8_t> left) {
  const Splits own(feature, threshold, default_left, set_of, left_sets, values);
  const std::size_t nodes = tree.shape(0), splits = own.count;
  if (keys.shape(0) != splits || tree_of.shape(0) != splits || least.shape(0) != splits || most.shape(0) != splits ||
      next.shape(1) != own.rows)
    throw std::invalid_argument("answer_route: shapes do not fit together");
  if (node.shape(0) != nodes || after.shape(0) != nodes || starts.shape(0) != nodes + 1 || starts.data()[0] != 0 ||
      starts.data()[nodes] != static_cast<std::int64_t>(rows.shape(0)))
    return -kShape;
  for (std::size_t k = 0; k < nodes; ++k) {
    const std::int64_t count = std::int64_t{starts.data()[k + 1]} - starts.data()[k];
    if (count < 0 || count > static_cast<std::int64_t>(own.rows)) return -kRows;
  }
  for (std::size_t i = 0; i < rows.shape(0); ++i)
    if (rows.data()[i] < 0 || static_cast<std::size_t>(rows.data()[i]) >= own.rows) return -kRows;
  std::vector<std::int32_t> split(nodes);
  std::vector<bool> named(splits, false);
  for (std::size_t k = 0; k < nodes; ++k) {
    const std::int64_t key = std::int64_t{tree.data()[k]} * (std::int64_t{1} << 32) | node.data()[k];
    const std::int64_t* const found = std::lower_bound(keys.data(), keys.data() + splits, key);
    if (found == keys.data() + splits || *found != key) return -kNode;
    split[k] = static_cast<std::int32_t>(found - keys.data());
  }
  for (std::size_t k = 0; k < nodes; ++k) {  // so no request can ask for more than the splits of all rows
    if (named[static_cast<std::size_t>(split[k])]) return -kTwice;
    named[static_cast<std::size_t>(split[k])] = true;
  }
  std::vector<std::int32_t> child(2 * nodes, -1);  // for both sides of each node, the node that comes after it
  for (std::size_t k = 0; k < nodes; ++k) {
    const std::int32_t above = after.data()[k];
    if (above == -1) continue;
    // A parent comes first, so there is no circle.
    if (above < 0 || static_cast<std::size_t>(above >> 1) >= k || tree.data()[above >> 1] != tree.data()[k]) return -kAfter;
    if (child[static_cast<std::size_t>(above)] >= 0 || starts.data()[k + 1] != starts.data()[k]) return -kSame;
    child[static_cast<std::size_t>(above)] = static_cast<std::int32_t>(k);
  }
  struct Place {
    std::int32_t at, row;
  };
  std::vector<Place> on;
  on.reserve(rows.shape(0));
  for (std::size_t k = 0; k < nodes; ++k)
    for (std::int32_t i = starts.data()[k]; i < starts.data()[k + 1]; ++i)
      on.push_back({static_cast<std::int32_t>(k), rows.data()[i]});
  constexpr std::uint8_t kNamed = 0x80;
  const auto next_of = [&](const Place& place) -> std::uint8_t& {
    const std::size_t own_tree = static_cast<std::size_t>(tree_of.data()[split[static_cast<std::size_t>(place.at)]]);
    if (own_tree >= next.shape(0)) throw std::invalid_argument("answer_route: no such tree");
    return next.data()[own_tree * own.rows + static_cast<std::size_t>(place.row)];
  };
  std::size_t used = 0;
  while (!on.empty()) {
    if (used + on.size() > 8 * left.shape(0)) throw std::invalid_argument("answer_route: no room for the answer");
    // Checked before any of them is noted. A row that is named twice in a tree would be on two nodes of one level.
    std::size_t good = 0;
    for (; good < on.size(); ++good) {
      std::uint8_t& level = next_of(on[good]);
      const std::size_t at = static_cast<std::size_t>(split[static_cast<std::size_t>(on[good].at)]);
      const int reached = std::max(least.data()[at], level);
      if (level & kNamed || reached > most.data()[at] || reached >= max_depth) break;
      level |= kNamed;
    }
    if (good < on.size()) {
      for (std::size_t i = 0; i < good; ++i) next_of(on[i]) &= static_cast<std::uint8_t>(~kNamed);
      return -kPath;
    }
    std::size_t kept = 0;
    for (std::size_t i = 0; i < on.size(); ++i, ++used) {
      const Place place = on[i];
      const std::size_t at = static_cast<std::size_t>(split[static_cast<std::size_t>(place.at)]);
      std::uint8_t& level = next_of(place);
      level = static_cast<std::uint8_t>(std::max<int>(least.data()[at], level & ~kNamed) + 1);
      const bool goes_left = own.goes_left(at, static_cast<std::size_t>(place.row));
      std::uint8_t& byte = left.data()[used >> 3];
      const std::uint8_t bit = static_cast<std::uint8_t>(0x80 >> (used & 7));
      byte = static_cast<std::uint8_t>((used & 7) == 0 ? (goes_left ? bit : 0) : (goes_left ? byte | bit : byte));
      const std::int32_t below = child[2 * static_cast<std::size_t>(place.at) + (goes_left ? 0 : 1)];
      if (below >= 0) on[kept++] = {below, place.row};
    }
    on.resize(kept);
  }
  return static_cast<std::int64_t>(used);
}

}  // namespace

void bind_walk(nb::module_& module) {
  module.def("goes_left", &goes_left, nb::call_guard<nb::gil_scoped_release>());
  module.def("walk_own", &walk_own, nb::call_guard<nb::gil_scoped_release>());
  module.def("sort_pairs", &sort_pairs, nb::call_guard<nb::gil_scoped_release>());
  module.def("route_request", &route_request, nb::call_guard<nb::gil_scoped_release>());
  module.def("follow_route", &follow_route, nb::call_guard<nb::gil_scoped_release>());
  module.def("answer_route", &answer_route, nb::call_guard<nb::gil_scoped_release>());
}
