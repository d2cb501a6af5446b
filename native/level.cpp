// What the levels of growing trees decide from the numbers of their nodes: children, siblings, nodes that may split, and
// the best of all owners' candidates.
#include <nanobind/stl/tuple.h>

#include <limits>
#include <tuple>

#include "kernels.h"

namespace {

void smaller_siblings(In1<std::int64_t> counts, Out1<std::int64_t> smaller) {
  if (counts.shape(0) != 2 * smaller.shape(0)) throw std::invalid_argument("smaller_siblings: shapes do not fit together");
  for (std::size_t pair = 0; pair < smaller.shape(0); ++pair)
    smaller.data()[pair] = static_cast<std::int64_t>(smaller_of(counts.data(), pair));
}

// Numbers the children of the nodes at `position` in their trees, tree by tree: `sizes` has the nodes of each tree.
void number_children(In1<std::int32_t> group, In1<std::int64_t> position, Out1<std::int32_t> sizes,
                     Out1<std::int32_t> children) {
  if (children.shape(0) != 2 * position.shape(0)) throw std::invalid_argument("number_children: shapes do not fit together");
  for (std::size_t k = 0; k < position.shape(0); ++k) {
    const std::size_t at = static_cast<std::size_t>(position.data()[k]);
    if (at >= group.shape(0) || static_cast<std::size_t>(group.data()[at]) >= sizes.shape(0))
      throw std::invalid_argument("number_children: no such node");
    std::int32_t& size = sizes.data()[group.data()[at]];
    children.data()[2 * k] = size;
    children.data()[2 * k + 1] = size + 1;
    size += 2;
  }
}

// The level of these children, whose parents are at `position` of the level above. Fills in `totals` (children, 2): of
// the smaller of two siblings they are `summed`, of the other those of its parent (`above`) minus these. `plan`
// (4, children) receives the nodes that may split, those to sum, those whose sums are derived, and the parents of these;
// returns how many of each. A node needs two rows and twice the least hessian to split; it and its sibling need
// `min_node_rows`. If `derives`, only the smaller of two siblings is summed.
std::tuple<std::size_t, std::size_t, std::size_t> plan_level(In1<std::int64_t> counts, In2<std::int64_t> summed,
                                                             In2<std::int64_t> above, In1<std::int64_t> position,
                                                             double h_unit, double min_child_weight,
                                                             std::int64_t min_node_rows, bool derives,
                                                             Out2<std::int64_t> totals, Out2<std::int64_t> plan) {
  const std::size_t nodes = counts.shape(0);
  if (nodes != 2 * position.shape(0) || summed.shape(0) != position.shape(0) || summed.shape(1) != 2 ||
      above.shape(1) != 2 || totals.shape(0) != nodes || totals.shape(1) != 2 || plan.shape(0) != 4 || plan.shape(1) != nodes)
    throw std::invalid_argument("plan_level: shapes do not fit together");
  std::int64_t *open = plan.data(), *build = open + nodes, *derive = build + nodes, *parent = derive + nodes;
  std::size_t opened = 0, built = 0, derived = 0;
  for (std::size_t pair = 0; pair < position.shape(0); ++pair) {
    const std::size_t smaller = smaller_of(counts.data(), pair), larger = smaller ^ 1;
    if (static_cast<std::size_t>(position.data()[pair]) >= above.shape(0))
      throw std::invalid_argument("plan_level: no such node");
    for (std::size_t j = 0; j < 2; ++j) {
      const std::int64_t known = summed.data()[2 * pair + j];
      totals.data()[2 * smaller + j] = known;
      totals.data()[2 * larger + j] = above.data()[2 * position.data()[pair] + j] - known;
    }
    const bool enough = counts.data()[smaller] >= min_node_rows;
    bool may_split[2];
    for (std::size_t child = 0; child < 2; ++child) {
      const std::size_t node = 2 * pair + child;
      may_split[child] = enough && counts.data()[node] >= 2 &&
                         static_cast<double>(totals.data()[2 * node + 1]) * h_unit >= 2 * min_child_weight;
      if (may_split[child]) open[opened++] = static_cast<std::int64_t>(node);
      if (may_split[child] && !derives) build[built++] = static_cast<std::int64_t>(node);
    }
    if (!derives) continue;
    if (may_split[0] || may_split[1]) build[built++] = static_cast<std::int64_t>(smaller);
    if (may_split[larger & 1]) {
      derive[derived] = static_cast<std::int64_t>(larger);
      parent[derived++] = position.data()[pair];
    }
  }
  return {opened, built, derived};
}

// Marks which children of an owner's splits may split again, if requests name them before their rows are known. The
// choices `at` are split at `position` of a level with these `totals`; left[starts[k]:starts[k + 1]] are the sums of
// the left child by each of the candidates that tie for node k. A node needs the hessian `least` to split. If `either`,
// one child is summed for both, so it is enough that one may split; of a large hessian one has half.
void children_ahead(In1<std::int64_t> at, In1<std::int32_t> position, In2<std::int64_t> totals, In1<std::int32_t> starts,
                    In2<std::int64_t> left, double h_unit, double least, bool either, Out2<bool> may_split) {
  const std::size_t nodes = at.shape(0);
  bool fits = position.shape(0) == nodes && starts.shape(0) == nodes + 1 && totals.shape(1) == 2 && left.shape(1) == 2 &&
              may_split.shape(1) == 2 && starts.data()[0] >= 0;
  for (std::size_t k = 0; fits && k < nodes; ++k)
    fits = static_cast<std::size_t>(at.data()[k]) < may_split.shape(0) && starts.data()[k] <= starts.data()[k + 1] &&
           static_cast<std::size_t>(position.data()[k]) < totals.shape(0);
  if (!fits || static_cast<std::size_t>(starts.data()[nodes]) > left.shape(0))
    throw std::invalid_argument("children_ahead: shapes do not fit together");
  for (std::size_t k = 0; k < nodes; ++k) {
    const std::int64_t parent = totals.data()[2 * position.data()[k] + 1];
    const bool sure = either && static_cast<double>(parent) * h_unit >= 2 * least;
    bool enough[2] = {sure, sure};
    for (std::int32_t i = starts.data()[k]; i < starts.data()[k + 1]; ++i) {
      const std::int64_t h = left.data()[2 * i + 1];
      enough[0] |= static_cast<double>(h) * h_unit >= least;
      const std::int64_t rest = static_cast<std::int64_t>(static_cast<std::uint64_t>(parent) - static_cast<std::uint64_t>(h));
      enough[1] |= static_cast<double>(rest) * h_unit >= least;
    }
    bool* out = may_split.data() + 2 * at.data()[k];
    out[0] = enough[0] || (either && enough[1]);
    out[1] = enough[1] || (either && enough[0]);
  }
}

// Whether these values strictly increase, so that none occurs twice, and lie in [0, limit).
bool increasing_below(In1<std::int32_t> values, std::int64_t limit) {
  const std::int32_t* value = values.data();
  const std::size_t count = values.shape(0);
  bool fits = count == 0 || (value[0] >= 0 && value[count - 1] < limit);
  for (std::size_t k = 1; k < count; ++k) fits &= value[k - 1] < value[k];
  return fits;
}

// What is wrong with a request to split nodes; the order is that of `passive.REFUSED`.
enum Refusal : int { kNothing, kLengths, kNodes, kFewRows, kNumbers, kLists, kCandidates };

bool is_ragged(const In1<std::int32_t>& starts, std::size_t lists, std::size_t values) {
  if (starts.shape(0) != lists + 1 || starts.data()[0] != 0) return false;
  for (std::size_t k = 0; k < lists; ++k)
    if (starts.data()[k] > starts.data()[k + 1]) return false;
  return static_cast<std::size_t>(starts.data()[lists]) == values;
}

// The request names nodes at `position` of a level with these `counts` of rows and `numbers` in the trees `first_tree` +
// `group`.
// Node k has at least one of the handles handles[starts[k]:starts[k + 1]], which are below `candidates`, and handle j
// lists set_starts[j + 1] - set_starts[j] of `set_bins` bins. Nodes with a sibling need it to have `min_node_rows` too.
int refused_splits(In1<std::int32_t> position, In1<std::int32_t> tree, In1<std::int32_t> node, In1<std::int32_t> starts,
                   In1<std::int32_t> handles, In1<std::int32_t> set_starts, std::size_t set_bins,
                   In1<std::int64_t> counts, In1<std::int32_t> numbers, In1<std::int32_t> group,
                   std::int64_t first_tree, bool siblings, std::int64_t min_node_rows, std::int64_t candidates) {
  const std::size_t count = position.shape(0), nodes = counts.shape(0);
  if (group.shape(0) != nodes || numbers.shape(0) != nodes || (siblings && nodes % 2 != 0))
    throw std::invalid_argument("refused_splits: shapes do not fit together");
  if (count == 0 || tree.shape(0) != count || node.shape(0) != count) return kLengths;
  if (!increasing_below(position, static_cast<std::int64_t>(nodes))) return kNodes;
  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t at = static_cast<std::size_t>(position.data()[k]);
    if (counts.data()[at] < min_node_rows || (siblings && counts.data()[at ^ 1] < min_node_rows)) return kFewRows;
  }
  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t at = static_cast<std::size_t>(position.data()[k]);
    if (tree.data()[k] != first_tree + group.data()[at] || node.data()[k] != numbers.data()[at]) return kNumbers;
  }
  if (!is_ragged(starts, count, handles.shape(0)) || !is_ragged(set_starts, handles.shape(0), set_bins)) return kLists;
  for (std::size_t k = 0; k < count; ++k)
    if (starts.data()[k] == starts.data()[k + 1]) return kCandidates;
  for (std::size_t j = 0; j < handles.shape(0); ++j)
    if (handles.data()[j] < 0 || handles.data()[j] >= candidates) return kCandidates;
  return kNothing;
}

// The nodes to sum of a request that was sent before the children's rows were known: `named` are those that it names.
// With `least_summed` above 0, of two siblings the smaller one, if it has that many rows, stands for both. Fills in
// `nodes` (2, children): those to sum, and those whose sums are known then; returns how many of each.
std::tuple<std::size_t, std::size_t> nodes_ahead(In1<std::int64_t> counts, In1<std::int32_t> named,
                                                 std::int64_t min_node_rows, std::int64_t least_summed,
                                                 Out2<std::int64_t> nodes) {
  const std::size_t count = counts.shape(0);
  if (count % 2 != 0 || nodes.shape(0) != 2 || nodes.shape(1) != count)
    throw std::invalid_argument("nodes_ahead: shapes do not fit together");
  std::vector<char> may_split(count, 0);
  for (std::size_t k = 0; k < named.shape(0); ++k) {
    if (static_cast<std::size_t>(named.data()[k]) >= count) throw std::invalid_argument("nodes_ahead: no such node");
    may_split[static_cast<std::size_t>(named.data()[k])] = 1;
  }
  std::int64_t *build = nodes.data(), *known = build + count;
  std::size_t built = 0, knows = 0;
  for (std::size_t pair = 0; pair < count / 2; ++pair) {
    const std::size_t smaller = smaller_of(counts.data(), pair);
    const bool enough = counts.data()[smaller] >= min_node_rows;
    bool wanted[2];
    for (std::size_t child = 0; child < 2; ++child)
      wanted[child] = enough && may_split[2 * pair + child] && counts.data()[2 * pair + child] >= 2;
    const std::size_t summed = counts.data()[smaller] < least_summed ? smaller ^ 1 : smaller;
    const bool both = least_summed > 0 && (wanted[0] || wanted[1]);
    if (both) build[built++] = static_cast<std::int64_t>(summed);
    for (std::size_t child = 0; child < 2; ++child) {
      const std::int64_t node = static_cast<std::int64_t>(2 * pair + child);
      if (least_summed == 0 && wanted[child]) build[built++] = node;
      if (both || (least_summed == 0 && wanted[child])) known[knows++] = node;
    }
  }
  return {built, knows};
}

// For every open node the first best of all owners' candidates, if its gain is at least `gamma` and above `least`: fills
// in its position, owner, gain and handle, and returns how many nodes have one.
std::size_t best_offers(const std::vector<Kept<const double, 1>>& gains,
                        const std::vector<Kept<const std::int32_t, 1>>& handles,
                        In1<std::int64_t> open, double least, double gamma, Out1<std::int64_t> position,
                        Out1<std::int32_t> owner, Out1<double> gain, Out1<std::int32_t> handle) {
  const std::size_t nodes = open.shape(0);
  bool fits = handles.size() == gains.size() && position.shape(0) == nodes && owner.shape(0) == nodes &&
              gain.shape(0) == nodes && handle.shape(0) == nodes;
  for (std::size_t who = 0; fits && who < gains.size(); ++who)
    fits = gains[who].shape(0) == nodes && handles[who].shape(0) == nodes;
  if (!fits) throw std::invalid_argument("best_offers: shapes do not fit together");
  std::size_t found = 0;
  for (std::size_t k = 0; k < nodes; ++k) {
    double best = -std::numeric_limits<double>::infinity();
    std::size_t winner = 0;
    for (std::size_t who = 0; who < gains.size(); ++who)
      if (gains[who].data()[k] > best) {
        best = gains[who].data()[k];
        winner = who;
      }
    if (!(best > least && best >= gamma)) continue;
    position.data()[found] = open.data()[k];
    owner.data()[found] = static_cast<std::int32_t>(winner);
    gain.data()[found] = best;
    handle.data()[found++] = handles[winner].data()[k];
  }
  return found;
}

}  // namespace

void bind_level(nb::module_& module) {
  module.def("smaller_siblings", &smaller_siblings, nb::call_guard<nb::gil_scoped_release>());
  module.def("number_children", &number_children, nb::call_guard<nb::gil_scoped_release>());
  module.def("plan_level", &plan_level, nb::call_guard<nb::gil_scoped_release>());
  module.def("children_ahead", &children_ahead, nb::call_guard<nb::gil_scoped_release>());
  module.def("increasing_below", &increasing_below, nb::call_guard<nb::gil_scoped_release>());
  module.def("refused_splits", &refused_splits, nb::call_guard<nb::gil_scoped_release>());
  module.def("nodes_ahead", &nodes_ahead, nb::call_guard<nb::gil_scoped_release>());
  module.def("best_offers", &best_offers, nb::call_guard<nb::gil_scoped_release>());
}
