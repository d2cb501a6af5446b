// What the levels of growing trees decide from the numbers of their nodes: children, siblings, nodes that may split, and
// the best of all owners' candidates.
#include <nanobind/stl/tuple.h>

#include <limits>
#include <tuple>

#include "kernels.h"

namespace {

// Of two siblings, the one with fewer rows is summed (the left one if they have as many).
std::size_t smaller_of(const std::int64_t* counts, std::size_t pair) {
  return 2 * pair + (counts[2 * pair + 1] < counts[2 * pair]);
}

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

// The nodes to sum of a request that was sent before the children's rows were known: `build` are those that it names.
// With `least_summed` above 0, of two siblings the smaller one, if it has that many rows, stands for both. Fills in
// `nodes` and returns how many there are.
std::size_t nodes_ahead(In1<std::int64_t> counts, In1<std::int32_t> build, std::int64_t min_node_rows,
                        std::int64_t least_summed, Out1<std::int64_t> nodes) {
  const std::size_t count = counts.shape(0);
  if (count % 2 != 0 || nodes.shape(0) != count) throw std::invalid_argument("nodes_ahead: shapes do not fit together");
  std::vector<char> may_split(count, 0);
  for (std::size_t k = 0; k < build.shape(0); ++k) {
    if (static_cast<std::size_t>(build.data()[k]) >= count) throw std::invalid_argument("nodes_ahead: no such node");
    may_split[static_cast<std::size_t>(build.data()[k])] = 1;
  }
  std::size_t found = 0;
  for (std::size_t pair = 0; pair < count / 2; ++pair) {
    const std::size_t smaller = smaller_of(counts.data(), pair);
    const bool enough = counts.data()[smaller] >= min_node_rows;
    bool wanted[2];
    for (std::size_t child = 0; child < 2; ++child)
      wanted[child] = enough && may_split[2 * pair + child] && counts.data()[2 * pair + child] >= 2;
    const std::size_t summed = counts.data()[smaller] < least_summed ? smaller ^ 1 : smaller;
    if (least_summed > 0 && (wanted[0] || wanted[1])) nodes.data()[found++] = static_cast<std::int64_t>(summed);
    for (std::size_t child = 0; child < 2 && least_summed == 0; ++child)
      if (wanted[child]) nodes.data()[found++] = static_cast<std::int64_t>(2 * pair + child);
  }
  return found;
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
  module.def("nodes_ahead", &nodes_ahead, nb::call_guard<nb::gil_scoped_release>());
  module.def("best_offers", &best_offers, nb::call_guard<nb::gil_scoped_release>());
}
