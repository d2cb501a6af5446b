// Contributions of features to the score of a row: path-dependent TreeSHAP (Lundberg et al. 2018, Algorithm 2).
#include "kernels.h"

namespace {

// A feature on the way to a node: the share of training rows that go on if the feature is unknown, whether the explained
// row goes on, and the summed weight of the subsets of features of one size.
struct Step {
  std::int32_t feature, slot;
  double zero, one, weight;
};

void extend(Step* path, std::size_t depth, std::int32_t feature, std::int32_t slot, double zero, double one) {
  path[depth] = {feature, slot, zero, one, depth == 0 ? 1.0 : 0.0};
  const double size = static_cast<double>(depth + 1);
  for (std::size_t i = depth; i-- > 0;) {
    path[i + 1].weight += one * path[i].weight * static_cast<double>(i + 1) / size;
    path[i].weight = zero * path[i].weight * static_cast<double>(depth - i) / size;
  }
}

// Undoes the extension by the step at `at`, as if it had never been taken.
void unwind(Step* path, std::size_t depth, std::size_t at) {
  const double one = path[at].one, zero = path[at].zero, size = static_cast<double>(depth + 1);
  double next = path[depth].weight;
  for (std::size_t i = depth; i-- > 0;) {
    if (one != 0.0) {
      const double before = path[i].weight;
      path[i].weight = next * size / (static_cast<double>(i + 1) * one);
      next = before - path[i].weight * zero * static_cast<double>(depth - i) / size;
    } else {
      path[i].weight = path[i].weight * size / (zero * static_cast<double>(depth - i));
    }
  }
  for (std::size_t i = at; i < depth; ++i) {
    path[i].feature = path[i + 1].feature;
    path[i].slot = path[i + 1].slot;
    path[i].zero = path[i + 1].zero;
    path[i].one = path[i + 1].one;
  }
}

// The sum of the weights after `unwind` at `at`.
double unwound_sum(const Step* path, std::size_t depth, std::size_t at) {
  const double one = path[at].one, zero = path[at].zero, size = static_cast<double>(depth + 1);
  double next = path[depth].weight, total = 0.0;
  for (std::size_t i = depth; i-- > 0;) {
    if (one != 0.0) {
      const double found = next * size / (static_cast<double>(i + 1) * one);
      total += found;
      next = path[i].weight - found * zero * static_cast<double>(depth - i) / size;
    } else {
      total += path[i].weight * size / (zero * static_cast<double>(depth - i));
    }
  }
  return total;
}

// One tree: nodes from its first, children of a node at left and left + 1.
struct Shape {
  const std::int32_t *left, *feature, *slot;
  const double *cover, *weight;
  const std::int64_t* split;  // number of a node's split among those of all trees
  std::size_t depth;
};

// Adds the contributions of the features on the way to each leaf below `node`. `path` has room for the deeper paths too.
void descend(const Shape& tree, const std::uint8_t* bits, std::size_t stride, std::size_t row, std::int32_t node,
             Step* path, std::size_t depth, std::int32_t feature, std::int32_t slot, double zero, double one,
             double* out) {
  extend(path, depth, feature, slot, zero, one);
  const std::int32_t left = tree.left[node];
  if (left < 0) {
    for (std::size_t i = 1; i <= depth; ++i)
      out[path[i].slot] += unwound_sum(path, depth, i) * (path[i].one - path[i].zero) * tree.weight[node];
    return;
  }
  const std::uint8_t* own = bits + static_cast<std::size_t>(tree.split[node]) * stride;
  const bool goes_left = (own[row >> 3] >> (7 - (row & 7))) & 1;
  double incoming_zero = 1.0, incoming_one = 1.0;
  std::size_t again = 1;
  while (again <= depth && path[again].feature != tree.feature[node]) ++again;
  if (again <= depth) {  // a feature counts once on a path
    incoming_zero = path[again].zero;
    incoming_one = path[again].one;
    unwind(path, depth, again);
    --depth;
  }
  Step* const below = path + tree.depth + 2;
  for (std::int32_t side = 0; side < 2; ++side) {
    const double share = tree.cover[left + side] / tree.cover[node];
    const bool hot = goes_left == (side == 0);
    std::copy_n(path, depth + 1, below);
    descend(tree, bits, stride, row, left + side, below, depth + 1, tree.feature[node], tree.slot[node],
            incoming_zero * share, hot ? incoming_one : 0.0, out);
  }
}

// Adds to out (rows, groups, slots + 1) the contribution of each slot, and in the last place the mean of the trees.
// Tree t has the nodes first[t] .. first[t+1]; left counts from the tree's first node, -1 at leaves. Splits by the same
// `feature` of a tree are one feature; what it contributes is added to its `slot`. Row r goes left at split s, counted
// over all trees, if bit r of went_left[s] is set. Covers are positive, and those of two children add up to the node's.
void tree_shap(In1<std::int64_t> first, In1<std::int32_t> left, In1<std::int32_t> feature, In1<std::int32_t> slot,
               In1<double> cover, In1<double> weight, In1<std::int32_t> group, In2<std::uint8_t> went_left,
               Out3<double> out, std::size_t threads) {
  const std::size_t trees = group.shape(0), nodes = left.shape(0), rows = out.shape(0);
  const std::size_t groups = out.shape(1), wide = out.shape(2);
  if (first.shape(0) != trees + 1 || feature.shape(0) != nodes || slot.shape(0) != nodes || cover.shape(0) != nodes ||
      weight.shape(0) != nodes || first.data()[0] != 0 || first.data()[trees] != static_cast<std::int64_t>(nodes) ||
      wide == 0)
    throw std::invalid_argument("tree_shap: shapes do not fit together");
  std::vector<std::int64_t> split(nodes, -1);
  std::vector<std::size_t> depths(trees, 0);
  std::vector<double> means(trees, 0.0);
  std::size_t splits = 0;
  for (std::size_t t = 0; t < trees; ++t) {
    const std::int64_t begin = first.data()[t], size = first.data()[t + 1] - begin;
    if (size < 1 || static_cast<std::size_t>(group.data()[t]) >= groups)
      throw std::invalid_argument("tree_shap: no such tree or group");
    std::vector<std::size_t> depth(static_cast<std::size_t>(size), 0);
    for (std::int64_t n = 0; n < size; ++n) {
      const std::int64_t at = begin + n, child = left.data()[at];
      if (!(cover.data()[at] > 0.0)) throw std::invalid_argument("tree_shap: a cover is not positive");
      depths[t] = std::max(depths[t], depth[static_cast<std::size_t>(n)]);
      if (child < 0) {
        means[t] += weight.data()[at] * (cover.data()[at] / cover.data()[begin]);
        continue;
      }
      if (child <= n || child + 1 >= size || static_cast<std::size_t>(slot.data()[at]) >= wide - 1)
        throw std::invalid_argument("tree_shap: no such child or slot");
      split[static_cast<std::size_t>(at)] = static_cast<std::int64_t>(splits++);
      depth[static_cast<std::size_t>(child)] = depth[static_cast<std::size_t>(child + 1)] =
          depth[static_cast<std::size_t>(n)] + 1;
    }
  }
  const std::size_t stride = went_left.shape(1);
  if (went_left.shape(0) != splits || stride * 8 < rows)
    throw std::invalid_argument("tree_shap: shapes do not fit together");
  const std::size_t deepest = trees == 0 ? 0 : *std::max_element(depths.begin(), depths.end());
  const std::size_t parts = std::max<std::size_t>(1, useful_threads(rows * nodes * (deepest + 1), threads));
  in_parallel(parts, [&](std::size_t part) {
    std::vector<Step> paths((deepest + 2) * (deepest + 2));
    for (std::size_t row = rows * part / parts; row < rows * (part + 1) / parts; ++row) {
      double* const own = out.data() + row * groups * wide;
      for (std::size_t t = 0; t < trees; ++t) {
        const std::size_t begin = static_cast<std::size_t>(first.data()[t]);
        double* const sums = own + static_cast<std::size_t>(group.data()[t]) * wide;
        const Shape tree{left.data() + begin,   feature.data() + begin, slot.data() + begin, cover.data() + begin,
                         weight.data() + begin, split.data() + begin,   depths[t]};
        sums[wide - 1] += means[t];
        descend(tree, went_left.data(), stride, row, 0, paths.data(), 0, -1, -1, 1.0, 1.0, sums);
      }
    }
  });
}

}  // namespace

void bind_shap(nb::module_& module) {
  module.def("tree_shap", &tree_shap, nb::call_guard<nb::gil_scoped_release>());
}
