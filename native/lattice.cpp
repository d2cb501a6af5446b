// veilboost._native.Lattice*: keys, encryption, encrypted sums and decryption of whole levels, spread over threads.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

#include "kernels.h"
#include "lattice/randomness.h"
#include "lattice/engine.h"
#include "lattice/room.h"

#include <nanobind/stl/string.h>

namespace {

using namespace lattice;

const Engine* const kEngines[] = {
#ifdef VEILBOOST_X86
    &kIfma, &kAvx2,
#endif
    &kPortable};

const Engine& engine_named(const std::string& name) {
  for (const Engine* engine : kEngines)
    if ((name == "auto" || name == engine->name) && engine->supported()) return *engine;
  throw std::invalid_argument("this processor has no such engine");
}

std::vector<std::string> engines() {
  std::vector<std::string> names;
  for (const Engine* engine : kEngines)
    if (engine->supported()) names.emplace_back(engine->name);
  return names;
}

std::size_t ceil_div(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

// Start of the runs, or the tiles, of each block of rows in the concatenation of all.
struct Cut {
  std::vector<std::size_t> first{0}, block;
  void add(std::size_t count) {
    block.insert(block.end(), count, first.size() - 1);
    first.push_back(first.back() + count);
  }
  std::size_t total() const { return first.back(); }
};

std::size_t checked_run(std::int32_t run) {
  if (run < static_cast<std::int32_t>(kLeastRun) || run > static_cast<std::int32_t>(kN) || (run & (run - 1)))
    throw std::invalid_argument("a run is not a power of two in range");
  return static_cast<std::size_t>(run);
}

struct Blocks {
  In1<std::int32_t> rows;
  In1<std::int64_t> begin, end;
  In1<std::int32_t> run;
  std::size_t count(std::size_t block) const { return static_cast<std::size_t>(end.data()[block] - begin.data()[block]); }
  std::size_t size() const { return begin.shape(0); }
  Cut runs() const {
    if (end.shape(0) != size() || run.shape(0) != size()) throw std::invalid_argument("blocks do not fit together");
    Cut cut;
    for (std::size_t block = 0; block < size(); ++block) {
      if (begin.data()[block] < 0 || end.data()[block] < begin.data()[block] ||
          end.data()[block] > static_cast<std::int64_t>(rows.shape(0)))
        throw std::invalid_argument("a block is not among the rows");
      cut.add(ceil_div(count(block), checked_run(run.data()[block])));
    }
    return cut;
  }
};

Cut tiles_of(In1<std::int32_t> run, std::size_t slots) {
  Cut cut;
  for (std::size_t block = 0; block < run.shape(0); ++block)
    cut.add(ceil_div(slots, kN / checked_run(run.data()[block])));
  return cut;
}

class Secret {
 public:
  Secret(std::size_t families, const nb::bytes& key, const std::string& engine)
      : engine_(engine_named(engine)), families_(families), words_(families * kPrimes) {
    std::memcpy(key_, seed_of(key), kSeedBytes);
    std::int8_t s[kN];
    for (std::size_t f = 0; f < families; ++f) {
      Chacha source(key_, f);
      ternary(source, s);
      engine_.prepare_secret(s, words_.at(f * kPrimes));
    }
    std::memset(s, 0, sizeof s);
  }
  ~Secret() {
    std::memset(key_, 0, sizeof key_);
    asm volatile("" : : "r"(key_) : "memory");
  }

  void public_key(const nb::bytes& seed, Out1<std::uint8_t> out) const {
    if (out.shape(0) != families_ * kPrimes * kPolyBytes) throw std::invalid_argument("public_key: wrong size");
    const Words room(4);
    for (std::size_t f = 0; f < families_; ++f)
      engine_.public_part(words_.at(f * kPrimes), seed_of(seed), key_, families_ + f,
                          out.data() + f * kPrimes * kPolyBytes, room.at());
  }

  // values (groups, rows, families) on the grid; a block holds rows[begin:end] and uses the values of its group.
  void encrypt(In3<std::int32_t> values, In1<std::int32_t> group, In1<std::int32_t> rows, In1<std::int64_t> begin,
               In1<std::int64_t> end, In1<std::int32_t> run, unsigned log_delta, const nb::bytes& seed,
               const nb::bytes& noise, Out1<std::uint8_t> out, std::size_t threads) const {
    const Blocks blocks{rows, begin, end, run};
    const Cut runs = blocks.runs();
    const std::size_t run_bytes = families_ * kPrimes * kPolyBytes;
    if (values.shape(2) != families_ || group.shape(0) != blocks.size() || out.shape(0) != runs.total() * run_bytes)
      throw std::invalid_argument("encrypt: shapes do not fit together");
    const std::uint8_t *a = seed_of(seed), *noise_key = seed_of(noise);
    const nb::gil_scoped_release released;
    spread(runs.total(), threads, 5, [&](std::size_t number, void* room) {
      const std::size_t block = runs.block[number], size = static_cast<std::size_t>(run.data()[block]);
      const std::size_t first = (number - runs.first[block]) * size;
      const std::size_t count = std::min(size, blocks.count(block) - first);
      // The last scratch polynomial is large enough for a run's values: there are few families.
      auto* gathered = reinterpret_cast<std::int32_t*>(static_cast<char*>(room) + 4 * kPolyWords * 8);
      const std::int32_t* row = rows.data() + begin.data()[block] + first;
      const std::int32_t* from = values.data() + static_cast<std::size_t>(group.data()[block]) * values.shape(1) * families_;
      for (std::size_t i = 0; i < count; ++i)
        std::memcpy(gathered + i * families_, from + static_cast<std::size_t>(row[i]) * families_, families_ * 4);
      engine_.encrypt(words_.at(), families_, gathered, count, log_delta, a, number, noise_key,
                      out.data() + number * run_bytes, room);
    });
  }

  // sums (blocks, families, slots) and masks (tiles of all blocks, bytes) to out (blocks, slots, families).
  bool decrypt(In3<u64> sums, In1<std::uint8_t> masks, In1<std::int32_t> run, unsigned log_delta,
               Out3<std::int64_t> out, std::size_t threads) const {
    const std::size_t slots = sums.shape(2);
    const Cut tiles = tiles_of(run, slots);
    if (sums.shape(0) != run.shape(0) || sums.shape(1) != families_ || out.shape(0) != run.shape(0) ||
        out.shape(1) != slots || out.shape(2) != families_ || masks.shape(0) != tiles.total() * kPolyBytes)
      throw std::invalid_argument("decrypt: shapes do not fit together");
    std::atomic<bool> fits{true};
    const nb::gil_scoped_release released;
    spread(tiles.total(), threads, 4, [&](std::size_t number, void* room) {
      const std::size_t block = tiles.block[number], size = static_cast<std::size_t>(run.data()[block]);
      const std::size_t in_tile = kN / size, first = (number - tiles.first[block]) * in_tile;
      if (!engine_.decrypt(words_.at(), families_, masks.data() + number * kPolyBytes,
                           sums.data() + block * families_ * slots + first, slots, std::min(in_tile, slots - first),
                           size, log_delta, out.data() + (block * slots + first) * families_, room))
        fits = false;
    });
    return fits;
  }

 private:
  const Engine& engine_;
  std::size_t families_;
  std::uint8_t key_[kSeedBytes];
  Words words_;
};

class Public {
 public:
  Public(std::size_t families, const nb::bytes& seed, In1<std::uint8_t> packed, const std::string& engine)
      : engine_(engine_named(engine)), families_(families), words_((families + 1) * kPrimes) {
    if (packed.shape(0) != families * kPrimes * kPolyBytes ||
        !engine_.prepare_public(seed_of(seed), packed.data(), families, words_.at()))
      throw std::invalid_argument("a public key has another size, or residues out of range");
  }

  // `added` (blocks, families, slots) is added to the sums; without blocks, nothing is added. False if a residue of the
  // ciphertexts is out of range.
  template <class Bin>
  bool sum(In1<std::uint8_t> ciphertext, const nb::bytes& seed, const std::vector<Kept<const Bin, 2>>& bins,
           In1<std::int32_t> matrix, In1<std::int32_t> rows, In1<std::int64_t> begin, In1<std::int64_t> end,
           In1<std::int32_t> run, In1<std::int32_t> feature_start, In1<std::int32_t> feature_width, unsigned log_flood,
           unsigned log_delta, In3<std::int64_t> added, const nb::bytes& noise, Out3<u64> sums, Out1<std::uint8_t> masks, std::size_t threads) const {
    const Blocks blocks{rows, begin, end, run};
    const Cut runs = blocks.runs();
    const std::size_t slots = sums.shape(2), features = feature_start.shape(0);
    const std::size_t run_bytes = families_ * kPrimes * kPolyBytes;
    const Cut tiles = tiles_of(run, slots);
    if (ciphertext.shape(0) != runs.total() * run_bytes || sums.shape(0) != blocks.size() ||
        sums.shape(1) != families_ || masks.shape(0) != tiles.total() * kPolyBytes ||
        feature_width.shape(0) != features || matrix.shape(0) != blocks.size() || log_flood > 62 ||
        (added.shape(0) && (added.shape(0) != blocks.size() || added.shape(1) != families_ || added.shape(2) != slots)))
      throw std::invalid_argument("sum: shapes do not fit together");
    for (const auto& each : bins)
      if (each.shape(1) != features) throw std::invalid_argument("sum: bins of other features");
    const std::uint8_t *a = seed_of(seed), *noise_key = seed_of(noise);
    const nb::gil_scoped_release released;
    constexpr std::size_t kRunsInMemory = 1024;  // two families: 200 MB
    std::atomic<bool> fits{true};
    for (std::size_t from = 0; from < blocks.size();) {
      std::size_t to = from + 1;
      while (to < blocks.size() && runs.first[to + 1] - runs.first[from] <= kRunsInMemory) ++to;
      const std::size_t first_run = runs.first[from], polynomials = (families_ + 1) * kPrimes;
      const Words loaded((runs.first[to] - first_run) * polynomials);
      spread(runs.first[to] - first_run, threads, 0, [&](std::size_t number, void*) {
        if (!engine_.load(ciphertext.data() + (first_run + number) * run_bytes, families_, a, first_run + number,
                          loaded.at(number * polynomials)))
          fits = false;
      });
      if (!fits) return false;
      std::vector<std::vector<std::int32_t>> slot(to - from);
      spread(to - from, threads, 0, [&](std::size_t number, void*) {
        const std::size_t block = from + number, count = blocks.count(block);
        slot[number].resize(features * count);
        const Bin* of = bins[static_cast<std::size_t>(matrix.data()[block])].data();
        const std::int32_t* row = rows.data() + begin.data()[block];
        for (std::size_t i = 0; i < count; ++i)
          for (std::size_t f = 0; f < features; ++f)
            slot[number][f * count + i] = feature_start.data()[f] + of[static_cast<std::size_t>(row[i]) * features + f];
      });
      // Tiles over the same runs form one task, but not so many that a thread is idle.
      const std::size_t all = tiles.first[to] - tiles.first[from];
      const std::size_t together = std::max<std::size_t>(1, std::min<std::size_t>(8, all / (3 * threads)));
      Cut jobs;
      for (std::size_t block = from; block < to; ++block)
        jobs.add(ceil_div(tiles.first[block + 1] - tiles.first[block], together));
      const std::size_t room = ceil_div(engine_.tile_scratch(families_, together), kPolyWords);
      spread(jobs.total(), threads, room, [&](std::size_t number, void* scratch) {
        const std::size_t at = jobs.block[number], block = from + at;
        TileJob job;
        job.ciphertext = loaded.at((runs.first[block] - first_run) * polynomials);
        job.public_key = words_.at();
        job.families = families_;
        job.runs = runs.first[block + 1] - runs.first[block];
        job.run = static_cast<std::size_t>(run.data()[block]);
        job.rows = blocks.count(block);
        job.slot = slot[at].data();
        job.feature_start = feature_start.data();
        job.feature_width = feature_width.data();
        job.features = features;
        job.slots = slots;
        job.first_tile = (number - jobs.first[at]) * together;
        job.tiles = std::min(together, tiles.first[block + 1] - tiles.first[block] - job.first_tile);
        job.log_flood = log_flood;
        job.log_delta = log_delta;
        job.added = added.shape(0) ? added.data() + block * families_ * slots : nullptr;
        job.noise_key = noise_key;
        job.noise_stream = tiles.first[block];
        job.sums = sums.data() + block * families_ * slots;
        job.masks = masks.data() + (tiles.first[block] + job.first_tile) * kPolyBytes;
        job.scratch = scratch;
        engine_.sum_tiles(job);
      });
      from = to;
    }
    return true;
  }

 private:
  const Engine& engine_;
  std::size_t families_;
  Words words_;
};

void transform(In1<std::int64_t> coefficients, std::size_t prime, const std::string& engine, Out1<u64> out) {
  if (coefficients.shape(0) != kN || out.shape(0) != kN || prime >= kPrimes)
    throw std::invalid_argument("transform: wrong shape");
  engine_named(engine).transform(coefficients.data(), prime, out.data());
}

}  // namespace

void bind_lattice(nb::module_& module) {
  module.def("lattice_engines", &engines);
  module.def("lattice_transform", &transform);
  nb::class_<Secret>(module, "LatticeSecret")
      .def(nb::init<std::size_t, const nb::bytes&, const std::string&>())
      .def("public_key", &Secret::public_key)
      .def("encrypt", &Secret::encrypt)
      .def("decrypt", &Secret::decrypt);
  nb::class_<Public>(module, "LatticePublic")
      .def(nb::init<std::size_t, const nb::bytes&, In1<std::uint8_t>, const std::string&>())
      .def("sum", &Public::sum<std::uint8_t>)
      .def("sum", &Public::sum<std::uint16_t>);
}
