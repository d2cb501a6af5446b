// veilboost._native.Expansion*: dense ciphertexts of whole levels, which the receiver expands, spread over threads.
#include <algorithm>
#include <numeric>
#include <string>

#include "kernels.h"
#include "lattice/bits.h"
#include "lattice/expansion_engine.h"
#include "lattice/randomness.h"
#include "lattice/room.h"

#include <nanobind/stl/string.h>

namespace {

using namespace lattice;

constexpr std::size_t kDegree = ExpansionRing::kN, kUnits = kDegree / kPolyWords;  // in units of `Words`
constexpr std::size_t kLineTiles = 64;   // a longer line of slots ends with its block
constexpr std::size_t kGroupTiles = 64;  // tiles that are summed at a time: 40 MB for each thread
constexpr unsigned kMostBits = 49;       // of an answer
constexpr unsigned kMostLogFlood = 90;

const ExpansionEngine* const kEngines[] = {
#ifdef VEILBOOST_X86
    &kExpansionIfma, &kExpansionAvx2,
#endif
    &kExpansionPortable};

const ExpansionEngine& engine_named(const std::string& name) {
  for (const ExpansionEngine* engine : kEngines)
    if ((name == "auto" || name == engine->name) && engine->supported()) return *engine;
  throw std::invalid_argument("this processor has no such engine");
}

std::size_t ceil_div(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

// Blocks by depth, longest runs first; blocks of one depth lie on a line of slots, which is divided into tiles.
struct Lines {
  struct Line {
    std::size_t depth, tile, slots, first;  // its first tile, its slots, its first block in `order`
  };
  std::vector<std::size_t> order;           // blocks
  std::vector<std::size_t> line, at;        // for each in `order`: its line, and where its slots start
  std::vector<Line> lines;
  std::size_t tiles = 0;

  Lines(In1<std::int32_t> depth, std::size_t slots) : order(depth.shape(0)), line(order.size()), at(order.size()) {
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (const std::size_t block : order)
      if (depth.data()[block] < 1 || depth.data()[block] > static_cast<std::int32_t>(kMostDepth))
        throw std::invalid_argument("a depth is out of range");
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return depth.data()[a] < depth.data()[b]; });
    for (std::size_t k = 0; k < order.size(); ++k) {
      const auto own = static_cast<std::size_t>(depth.data()[order[k]]);
      if (lines.empty() || lines.back().depth != own || lines.back().slots >= kLineTiles << own)
        lines.push_back({own, lines.empty() ? 0 : lines.back().tile + tiles_of(lines.back()), 0, k});
      line[k] = lines.size() - 1, at[k] = lines.back().slots;
      lines.back().slots += slots;
    }
    if (!lines.empty()) tiles = lines.back().tile + tiles_of(lines.back());
  }

  static std::size_t tiles_of(const Line& line) { return ceil_div(line.slots, std::size_t{1} << line.depth); }

  // body(tile in the line, slots in it, k, block's first slot in the tile, its slot there, how many) for the blocks in a
  // tile.
  template <class Body>
  void blocks_in(const Line& of, std::size_t tile, std::size_t slots, Body body) const {
    const std::size_t low = tile << of.depth, high = std::min(of.slots, (tile + 1) << of.depth);
    for (std::size_t k = of.first + low / std::max<std::size_t>(slots, 1); k < order.size() && at[k] < high; ++k) {
      if (&lines[line[k]] != &of) break;
      const std::size_t from = std::max(low, at[k]), to = std::min(high, at[k] + slots);
      if (from < to) body(order[k], from - low, from - at[k], to - from);
    }
  }
};

// The leaves of a level's blocks in the order of their positions; ciphertext k has the positions from k N on.
struct Leaves {
  std::vector<Leaf> all;
  std::vector<std::size_t> number;  // of the ciphertext of each leaf
  std::size_t ciphertexts = 0, rows = 0;
  std::vector<std::size_t> first;   // rows before each block

  Leaves(const Lines& lines, In1<std::int32_t> listed, In1<std::int64_t> begin, In1<std::int64_t> end) {
    const std::size_t blocks = lines.order.size();
    if (begin.shape(0) != blocks || end.shape(0) != blocks) throw std::invalid_argument("blocks do not fit together");
    for (std::size_t block = 0; block < blocks; ++block) {
      if (begin.data()[block] < 0 || end.data()[block] < begin.data()[block] ||
          end.data()[block] > static_cast<std::int64_t>(listed.shape(0)))
        throw std::invalid_argument("a block is not among the rows");
      first.push_back(rows);
      rows += static_cast<std::size_t>(end.data()[block] - begin.data()[block]);
    }
    std::size_t position = 0;
    for (std::size_t k = 0; k < blocks; ++k) {
      const std::size_t block = lines.order[k], depth = lines.lines[lines.line[k]].depth, run = kDegree >> depth;
      const auto count = static_cast<std::size_t>(end.data()[block] - begin.data()[block]);
      for (std::size_t row = 0; row < count; row += run, position += run) {
        const std::size_t offset = position % kDegree, residue = reversed(offset / run, depth);
        all.push_back({offset, depth, residue, std::min(run, count - row), block, row,
                       lines.lines[lines.line[k]].tile, lines.at[k]});
        number.push_back(position / kDegree);
      }
    }
    ciphertexts = ceil_div(position, kDegree);
  }
  std::size_t row_of(std::size_t leaf) const { return first[all[leaf].block] + all[leaf].first_row; }
  // body(first leaf, end, ciphertext) for the ciphertexts of a range of leaves.
  template <class Body>
  void by_ciphertext(std::size_t from, std::size_t to, Body body) const {
    while (from < to) {
      std::size_t end = from + 1;
      while (end < to && number[end] == number[from]) ++end;
      body(from, end, number[from]);
      from = end;
    }
  }
};

std::size_t key_bytes(std::size_t depth) { return kPublicKeyBytes + depth * kStepBytes; }
std::size_t sum_bytes(std::size_t blocks, std::size_t slots, unsigned bits) {
  return ceil_div(blocks * kFamilies * slots * bits, 8);
}

// The tiles of an answer for blocks of these depths.
std::size_t tiles(In1<std::int32_t> depth, std::size_t slots) { return Lines(depth, slots).tiles; }

class ExpansionSecret {
 public:
  ExpansionSecret(const nb::bytes& key, const std::string& engine)
      : engine_(engine_named(engine)), words_(kFamilies * ExpansionRing::kPrimes * kUnits), ternary_(kFamilies * kDegree) {
    std::memcpy(key_, seed_of(key), kSeedBytes);
    for (std::size_t f = 0; f < kFamilies; ++f) {
      Chacha source(key_, f);
      ternary(source, ternary_.data() + f * kDegree, kDegree);
      engine_.prepare_secret(ternary_.data() + f * kDegree, secret(f));
    }
  }
  ~ExpansionSecret() {
    std::memset(key_, 0, sizeof key_);
    std::memset(ternary_.data(), 0, ternary_.size());
    asm volatile("" : : "r"(key_), "r"(ternary_.data()) : "memory");
  }

  // The public key, and the keys of `depth` steps: digits x families x primes each.
  void public_keys(const nb::bytes& seed, std::size_t depth, Out1<std::uint8_t> out, std::size_t threads) const {
    if (depth > kMostDepth || out.shape(0) != key_bytes(depth)) throw std::invalid_argument("public_keys: wrong size");
    const std::uint8_t* a = seed_of(seed);
    const nb::gil_scoped_release released;
    spread(kFamilies * (1 + 2 * depth), threads, 3 * kUnits, [&](std::size_t number, void* room) {
      const std::size_t f = number % kFamilies, of = number / kFamilies;
      void* scratch = room;
      if (!of)
        return engine_.key_part(secret(f), nullptr, 0, ExpansionRing::kModuli, a, 0, key_, kFamilies + f,
                                out.data() + f * ExpansionRing::kModuli * ExpansionRing::kPolyBytes, scratch);
      const std::size_t step = (of - 1) / 2, digit = (of - 1) % 2, exponent = (kDegree >> step) + 1;
      auto* image = reinterpret_cast<std::int8_t*>(static_cast<char*>(room) + 2 * kDegree * 8);
      const std::int8_t* s = ternary_.data() + f * kDegree;
      for (std::size_t i = 0; i < kDegree; ++i) {
        const std::size_t to = i * exponent % (2 * kDegree);
        image[to % kDegree] = to < kDegree ? s[i] : static_cast<std::int8_t>(-s[i]);
      }
      engine_.key_part(secret(f), image, digit, ExpansionRing::kPrimes, a,
                       ExpansionRing::kModuli + (of - 1) * ExpansionRing::kPrimes, key_, kFamilies + number,
                       out.data() + kPublicKeyBytes + (number - kFamilies) * ExpansionRing::kPrimes * ExpansionRing::kPolyBytes,
                       scratch);
    });
  }

  // values (groups, rows, families) on the grid; a block holds rows[begin:end] and uses the values of its group.
  void encrypt(In3<std::int32_t> values, In1<std::int32_t> group, In1<std::int32_t> rows, In1<std::int64_t> begin,
               In1<std::int64_t> end, In1<std::int32_t> depth, unsigned log_delta, const nb::bytes& seed,
               const nb::bytes& noise, Out1<std::uint8_t> out, std::size_t threads) const {
    const Lines lines(depth, 0);
    const Leaves leaves(lines, rows, begin, end);
    if (values.shape(2) != kFamilies || group.shape(0) != begin.shape(0) || out.shape(0) != leaves.rows * kRowBytes ||
        log_delta < kMostDepth || log_delta > 99)
      throw std::invalid_argument("encrypt: shapes do not fit together");
    const std::uint8_t *a = seed_of(seed), *noise_key = seed_of(noise);
    const nb::gil_scoped_release released;
    std::vector<std::size_t> start{0};
    for (std::size_t k = 1; k <= leaves.all.size(); ++k)
      if (k == leaves.all.size() || leaves.number[k] != leaves.number[k - 1]) start.push_back(k);
    spread(leaves.ciphertexts, threads, 5 * kUnits, [&](std::size_t number, void* room) {
      const std::size_t from = start[number], count = start[number + 1] - from;
      std::vector<std::int32_t> gathered(kDegree * kFamilies);
      std::vector<const std::int32_t*> own(count);
      std::vector<std::uint8_t*> to(count);
      std::int32_t* next = gathered.data();
      for (std::size_t k = 0; k < count; ++k) {
        const Leaf& leaf = leaves.all[from + k];
        own[k] = next, to[k] = out.data() + leaves.row_of(from + k) * kRowBytes;
        const std::int32_t* row = rows.data() + begin.data()[leaf.block] + leaf.first_row;
        const std::int32_t* of = values.data() + static_cast<std::size_t>(group.data()[leaf.block]) * values.shape(1) * kFamilies;
        for (std::size_t i = 0; i < leaf.rows; ++i, next += kFamilies)
          std::memcpy(next, of + static_cast<std::size_t>(row[i]) * kFamilies, kFamilies * 4);
      }
      engine_.encrypt(words_.at(), &leaves.all[from], count, own.data(), log_delta, a, number, noise_key, to.data(), room);
    });
  }

  // Packed sums (blocks, families, slots) and masks (tiles) to out (blocks, slots, families).
  void decrypt(In1<std::uint8_t> sums, In1<std::uint8_t> masks, In1<std::int32_t> depth, std::size_t slots, unsigned bits,
               unsigned log_delta, Out3<std::int64_t> out, std::size_t threads) const {
    const Lines lines(depth, slots);
    const std::size_t blocks = depth.shape(0), mask_bytes = kDegree * bits / 8;
    if (bits < 1 || bits > kMostBits || log_delta < 1 || log_delta > 99 || out.shape(0) != blocks ||
        out.shape(1) != slots || out.shape(2) != kFamilies || sums.shape(0) != sum_bytes(blocks, slots, bits) ||
        masks.shape(0) != lines.tiles * mask_bytes)
      throw std::invalid_argument("decrypt: shapes do not fit together");
    const nb::gil_scoped_release released;
    BitReader reader(sums.data(), sums.shape(0));
    std::vector<u64> all(blocks * kFamilies * slots);
    for (u64& each : all) each = reader.next(bits);
    for (const auto& line : lines.lines)
      spread(Lines::tiles_of(line), threads, 2 * kUnits, [&](std::size_t tile, void* room) {
        const std::size_t count = std::min(line.slots - (tile << line.depth), std::size_t{1} << line.depth);
        std::vector<u64> own(kFamilies * count);
        std::vector<std::int64_t> found(count * kFamilies);
        lines.blocks_in(line, tile, slots, [&](std::size_t block, std::size_t in_tile, std::size_t slot, std::size_t many) {
          for (std::size_t f = 0; f < kFamilies; ++f)
            std::copy_n(&all[(block * kFamilies + f) * slots + slot], many, &own[f * count + in_tile]);
        });
        engine_.decrypt(words_.at(), masks.data() + (line.tile + tile) * mask_bytes, own.data(), count, bits, log_delta,
                        found.data(), room);
        lines.blocks_in(line, tile, slots, [&](std::size_t block, std::size_t in_tile, std::size_t slot, std::size_t many) {
          std::copy_n(&found[in_tile * kFamilies], many * kFamilies, out.data() + (block * slots + slot) * kFamilies);
        });
      });
  }

 private:
  void* secret(std::size_t family) const { return words_.at(family * ExpansionRing::kPrimes * kUnits); }

  const ExpansionEngine& engine_;
  std::uint8_t key_[kSeedBytes];
  Words words_;
  std::vector<std::int8_t> ternary_;
};

class ExpansionPublic {
 public:
  ExpansionPublic(const nb::bytes& seed, In1<std::uint8_t> packed, std::size_t depth, const std::string& engine)
      : engine_(engine_named(engine)), depth_(depth), words_((kPublicKeyPolynomials + depth * kStepPolynomials) * kUnits) {
    if (depth > kMostDepth || packed.shape(0) != key_bytes(depth) ||
        !engine_.prepare_keys(seed_of(seed), packed.data(), depth, words_.at()))
      throw std::invalid_argument("public keys have another size, or residues out of range");
  }

  // `added` (blocks, families, slots) is added to the sums; without blocks, nothing is added. Writes packed sums (blocks,
  // families, slots) and masks (tiles). False if a residue of the ciphertexts is out of range.
  template <class Bin>
  bool sum(In1<std::uint8_t> ciphertext, const nb::bytes& seed, const std::vector<Kept<const Bin, 2>>& bins,
           In1<std::int32_t> matrix, In1<std::int32_t> rows, In1<std::int64_t> begin, In1<std::int64_t> end,
           In1<std::int32_t> depth, In1<std::int32_t> feature_start, std::size_t slots, unsigned log_flood,
           unsigned log_delta, unsigned bits, In3<std::int64_t> added, const nb::bytes& noise, Out1<std::uint8_t> sums,
           Out1<std::uint8_t> masks, std::size_t threads) const {
    const Lines lines(depth, slots);
    const Leaves leaves(lines, rows, begin, end);
    const std::size_t blocks = depth.shape(0), features = feature_start.shape(0), mask_bytes = kDegree * bits / 8;
    if (bits < 1 || bits > kMostBits || log_flood > kMostLogFlood || log_delta > 99 ||
        ciphertext.shape(0) != leaves.rows * kRowBytes || matrix.shape(0) != blocks ||
        sums.shape(0) != sum_bytes(blocks, slots, bits) || masks.shape(0) != lines.tiles * mask_bytes ||
        (added.shape(0) && (added.shape(0) != blocks || added.shape(1) != kFamilies || added.shape(2) != slots)))
      throw std::invalid_argument("sum: shapes do not fit together");
    for (const std::size_t block : lines.order)
      if (static_cast<std::size_t>(depth.data()[block]) > depth_) throw std::invalid_argument("sum: no key for a depth");
    for (const auto& each : bins)
      if (each.shape(1) != features) throw std::invalid_argument("sum: bins of other features");
    const std::uint8_t *a = seed_of(seed), *noise_key = seed_of(noise);
    const nb::gil_scoped_release released;
    std::atomic<bool> fits{true};
    std::vector<u64> answers(blocks * kFamilies * slots);
    std::size_t first_leaf = 0;
    for (std::size_t from = 0; from < lines.lines.size();) {  // lines
      std::size_t to = from + 1;
      const std::size_t first_tile = lines.lines[from].tile;
      const auto end_of = [&](std::size_t line) { return lines.lines[line].tile + Lines::tiles_of(lines.lines[line]); };
      while (to < lines.lines.size() && end_of(to) - first_tile <= kGroupTiles) ++to;
      const std::size_t tiles = end_of(to - 1) - first_tile;
      std::size_t last_leaf = first_leaf;
      while (last_leaf < leaves.all.size() && leaves.all[last_leaf].tile < first_tile + tiles) ++last_leaf;
      // Each part has sums of its own, which are added up.
      const std::size_t count = last_leaf - first_leaf;
      const std::size_t parts = std::max<std::size_t>(1, std::min(threads, count / 8));
      const std::size_t room = tiles * kLeafPolynomials * kUnits;
      const Words totals(parts * room);
      std::memset(totals.at(), 0, parts * room * kPolyWords * 8);
      spread(parts, threads, kExpandPolynomials * kUnits, [&](std::size_t part, void* scratch) {
        const std::size_t low = first_leaf + part * count / parts, high = first_leaf + (part + 1) * count / parts;
        leaves.by_ciphertext(low, high, [&](std::size_t begin_leaf, std::size_t end_leaf, std::size_t number) {
          std::vector<std::int32_t> slot;
          std::vector<std::size_t> stride;
          std::vector<const std::uint8_t*> packed;
          for (std::size_t leaf = begin_leaf; leaf < end_leaf; ++leaf) {
            const Leaf& own = leaves.all[leaf];
            const Bin* of = bins[static_cast<std::size_t>(matrix.data()[own.block])].data();
            const std::int32_t* row = rows.data() + begin.data()[own.block] + own.first_row;
            for (std::size_t f = 0; f < features; ++f)
              for (std::size_t i = 0; i < own.rows; ++i)
                slot.push_back(feature_start.data()[f] + of[static_cast<std::size_t>(row[i]) * features + f]);
            stride.push_back(own.rows), packed.push_back(ciphertext.data() + leaves.row_of(leaf) * kRowBytes);
          }
          std::vector<const std::int32_t*> slots_of;
          for (std::size_t k = 0, at = 0; k < stride.size(); at += features * stride[k++]) slots_of.push_back(slot.data() + at);
          ExpandJob job;
          job.keys = words_.at();
          job.seed = a;
          job.number = number;
          job.leaves = &leaves.all[begin_leaf];
          job.count = end_leaf - begin_leaf;
          job.packed = packed.data();
          job.slot = slots_of.data();
          job.stride = stride.data();
          job.features = features;
          job.slots = slots;
          job.first_tile = first_tile;
          job.sums = totals.at(part * room);
          job.scratch = scratch;
          if (!engine_.expand(job)) fits = false;
        });
      });
      if (!fits) return false;
      for (std::size_t number = from; number < to; ++number) {
        const auto& line = lines.lines[number];
        spread(Lines::tiles_of(line), threads, 3 * kUnits, [&](std::size_t tile, void* scratch) {
          const std::size_t at = (line.tile - first_tile + tile) * kLeafPolynomials * kUnits;
          for (std::size_t part = 1; part < parts; ++part) engine_.add(totals.at(at), totals.at(part * room + at));
          FinishJob job;
          job.keys = words_.at();
          job.sums = totals.at(at);
          job.count = std::min(line.slots - (tile << line.depth), std::size_t{1} << line.depth);
          std::vector<u64> found(kFamilies * job.count);
          std::vector<std::int64_t> more(added.shape(0) ? kFamilies * job.count : 0);
          lines.blocks_in(line, tile, slots, [&](std::size_t block, std::size_t in_tile, std::size_t slot, std::size_t many) {
            for (std::size_t f = 0; f < kFamilies && !more.empty(); ++f)
              std::copy_n(added.data() + (block * kFamilies + f) * slots + slot, many, &more[f * job.count + in_tile]);
          });
          job.log_flood = log_flood;
          job.log_delta = log_delta;
          job.bits = bits;
          job.added = more.empty() ? nullptr : more.data();
          job.noise_key = noise_key;
          job.noise_stream = line.tile + tile;
          job.answers = found.data();
          job.mask = masks.data() + (line.tile + tile) * mask_bytes;
          job.scratch = scratch;
          engine_.finish(job);
          lines.blocks_in(line, tile, slots, [&](std::size_t block, std::size_t in_tile, std::size_t slot, std::size_t many) {
            for (std::size_t f = 0; f < kFamilies; ++f)
              std::copy_n(&found[f * job.count + in_tile], many, &answers[(block * kFamilies + f) * slots + slot]);
          });
        });
      }
      from = to, first_leaf = last_leaf;
    }
    BitWriter writer(sums.data());
    for (const u64 each : answers) writer.put(each, bits);
    writer.end();
    return true;
  }

 private:
  const ExpansionEngine& engine_;
  std::size_t depth_;
  Words words_;
};

}  // namespace

void bind_expansion(nb::module_& module) {
  module.def("expansion_tiles", &tiles);
  nb::class_<ExpansionSecret>(module, "ExpansionSecret")
      .def(nb::init<const nb::bytes&, const std::string&>())
      .def("public_keys", &ExpansionSecret::public_keys)
      .def("encrypt", &ExpansionSecret::encrypt)
      .def("decrypt", &ExpansionSecret::decrypt);
  nb::class_<ExpansionPublic>(module, "ExpansionPublic")
      .def(nb::init<const nb::bytes&, In1<std::uint8_t>, std::size_t, const std::string&>())
      .def("sum", &ExpansionPublic::sum<std::uint8_t>)
      .def("sum", &ExpansionPublic::sum<std::uint16_t>);
}
