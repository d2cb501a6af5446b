// veilboost._native.LatticeMasks: reusable masks, dense encryption of whole vectors, and sums of their rows.
#include <algorithm>
#include <string>

#include "kernels.h"
#include "lattice/masks_engine.h"
#include "lattice/randomness.h"
#include "lattice/room.h"

#include <nanobind/stl/string.h>

namespace {

using namespace lattice;

const MaskEngine* const kEngines[] = {
#ifdef VEILBOOST_X86
    &kMaskIfma, &kMaskAvx2,
#endif
    &kMaskPortable};

const MaskEngine& engine_named(const std::string& name) {
  for (const MaskEngine* engine : kEngines)
    if ((name == "auto" || name == engine->name) && engine->supported()) return *engine;
  throw std::invalid_argument("this processor has no such engine");
}

std::size_t checked_width(unsigned bits, unsigned log_delta) {
  const std::size_t width = (bits + 7) / 8;
  if (width < kLeastWidth || width > kMostWidth || log_delta < 2 || log_delta >= bits)
    throw std::invalid_argument("a dense value has an impossible size");
  return width;
}

std::size_t polynomials_for(std::size_t rows) { return (rows + kN - 1) / kN; }

// The secret of one family of a vector, as coefficients.
void secret_of(const std::uint8_t* key, std::size_t family, std::int8_t* out) {
  Chacha source(key, family);
  ternary(source, out);
}

// The job's uniform polynomials, expanded here: a peer that chose them could remove the masks.
class Masks {
 public:
  Masks(const nb::bytes& seed, std::size_t rows, const std::string& engine)
      : engine_(engine_named(engine)), rows_(rows), words_((polynomials_for(rows) + 1) * kPrimes) {
    const std::uint8_t* from = seed_of(seed);
    for (std::size_t number = 0; number <= polynomials_for(rows); ++number)
      engine_.expand(from, number, words_.at(number * kPrimes));
  }

  // values (rows, 2) to their rows of `width` bytes each, and the vector's key part (2, N, width), which hides masks.
  void encrypt(In2<std::int32_t> values, const nb::bytes& key, unsigned log_delta, unsigned bits,
               Out2<std::uint8_t> out, Out3<std::uint8_t> part, std::size_t threads) const {
    const std::size_t width = checked_width(bits, log_delta);
    if (values.shape(0) != rows_ || values.shape(1) != kPair || out.shape(0) != rows_ ||
        out.shape(1) != kPair * width || part.shape(0) != kPair || part.shape(1) != kN || part.shape(2) != width)
      throw std::invalid_argument("encrypt: shapes do not fit together");
    const std::uint8_t* secret_key = seed_of(key);
    const nb::gil_scoped_release released;
    const Words secrets(kPair * kPrimes);
    std::int8_t s[kN];
    for (std::size_t f = 0; f < kPair; ++f) {
      secret_of(secret_key, f, s);
      engine_.prepare_secret(s, secrets.at(f * kPrimes));
    }
    std::memset(s, 0, sizeof s);
    spread(kPair * (polynomials_for(rows_) + 1), threads, 4, [&](std::size_t task, void* room) {
      const std::size_t number = task / kPair, f = task % kPair, first = number ? (number - 1) * kN : 0;
      DenseJob job;
      job.a = words_.at(number * kPrimes);
      job.secret = secrets.at(f * kPrimes);
      job.values = number ? values.data() + first * kPair + f : nullptr;
      job.count = number && rows_ - first < kN ? rows_ - first : kN;
      job.log_delta = log_delta, job.bits = bits;
      job.noise_key = secret_key;
      job.noise_stream = kPair + task;  // the first streams are the secrets
      job.out = number ? out.data() + (first * kPair + f) * width : part.data() + f * kN * width;
      job.stride = number ? kPair * width : width;
      job.scratch = room;
      engine_.encrypt(job);
    });
  }

  // Masks (slots, bytes, N) of consecutive slots from `from` on, and the factors (slots, N) that remove them.
  template <class Bin>
  void make(In2<Bin> bins, In1<std::int32_t> offsets, std::size_t from, const nb::bytes& noise,
            Out3<std::uint8_t> masks, Out2<std::int8_t> hiding, std::size_t threads) const {
    const std::size_t features = bins.shape(1), slots = masks.shape(0);
    if (bins.shape(0) != rows_ || offsets.shape(0) != features + 1 || masks.shape(1) > kMostMaskBytes ||
        masks.shape(2) != kN || hiding.shape(0) != slots || hiding.shape(1) != kN ||
        from + slots > static_cast<std::size_t>(offsets.data()[features]))
      throw std::invalid_argument("make: shapes do not fit together");
    const std::uint8_t* noise_key = seed_of(noise);
    const nb::gil_scoped_release released;
    std::vector<std::uint16_t> column(rows_);
    for (std::size_t feature = 0; feature < features; ++feature) {
      const auto start = static_cast<std::size_t>(offsets.data()[feature]);
      const std::size_t first = std::max(start, from);
      const std::size_t last = std::min(static_cast<std::size_t>(offsets.data()[feature + 1]), from + slots);
      if (first >= last) continue;
      for (std::size_t row = 0; row < rows_; ++row) column[row] = bins.data()[row * features + feature];
      spread(last - first, threads, 5, [&](std::size_t number, void* room) {
        const std::size_t slot = first + number;
        MaskJob job;
        job.a = words_.at();
        job.bins = column.data(), job.bin = static_cast<std::uint16_t>(slot - start), job.rows = rows_;
        job.noise_key = noise_key, job.noise_stream = slot;
        job.bytes = masks.shape(1);
        job.mask = masks.data() + (slot - from) * masks.shape(1) * kN;
        job.hiding = hiding.data() + (slot - from) * kN;
        job.scratch = room;
        engine_.make_mask(job);
      });
    }
  }

 private:
  const MaskEngine& engine_;
  std::size_t rows_;
  Words words_;
};

// Sums (slots, 2, 2 limbs) of dense rows; limbs of 48 bits, the upper ones modulo 2^64.
template <class Bin>
void add_rows(In2<std::uint8_t> dense, In2<Bin> bins, In1<std::int32_t> starts, const std::string& engine,
              Out3<u64> sums) {
  const MaskEngine& of = engine_named(engine);
  const std::size_t rows = dense.shape(0), width = dense.shape(1) / kPair, slots = sums.shape(0);
  if (dense.shape(1) != kPair * width || width < kLeastWidth || width > kMostWidth || bins.shape(0) != rows ||
      starts.shape(0) != bins.shape(1) || sums.shape(1) != kPair || sums.shape(2) != 2)
    throw std::invalid_argument("add_rows: shapes do not fit together");
  const nb::gil_scoped_release released;
  std::memset(sums.data(), 0, slots * kPair * 2 * sizeof(u64));
  if constexpr (sizeof(Bin) == 1)
    of.add_narrow(dense.data(), width, bins.data(), starts.data(), bins.shape(1), rows, sums.data(), slots);
  else
    of.add_wide(dense.data(), width, bins.data(), starts.data(), bins.shape(1), rows, sums.data(), slots);
}

// The answer for one vector: sums (slots, 2, 2 limbs), plus the product of `hiding` (all slots, N) and the vector's key
// part, plus `added` (2, slots; or nothing) at the scale of the values, plus the flood, rounded to `8 mask_bytes` bits.
// `mask` names the mask of each slot.
void answer(In3<u64> sums, In1<std::int32_t> mask, In2<std::int8_t> hiding, In3<std::uint8_t> part, unsigned log_flood,
            unsigned log_delta, unsigned bits, std::size_t mask_bytes, In2<std::int64_t> added, const nb::bytes& noise,
            const std::string& engine, Out2<u64> out, std::size_t threads) {
  const MaskEngine& of = engine_named(engine);
  const std::size_t width = checked_width(bits, log_delta), slots = sums.shape(0);
  if (sums.shape(1) != kPair || sums.shape(2) != 2 || mask.shape(0) != slots || hiding.shape(1) != kN ||
      part.shape(0) != kPair || part.shape(1) != kN || part.shape(2) != width || log_flood > 62 ||
      mask_bytes > kMostMaskBytes || 8 * mask_bytes > bits || out.shape(0) != kPair || out.shape(1) != slots ||
      (added.shape(0) && (added.shape(0) != kPair || added.shape(1) != slots)))
    throw std::invalid_argument("answer: shapes do not fit together");
  for (std::size_t slot = 0; slot < slots; ++slot)
    if (mask.data()[slot] < 0 || static_cast<std::size_t>(mask.data()[slot]) >= hiding.shape(0))
      throw std::invalid_argument("answer: there is no such mask");
  const std::uint8_t* noise_key = seed_of(noise);
  const nb::gil_scoped_release released;
  // The key part in limbs of 15 bits, whose products are summed exactly by the processor's widest instructions.
  constexpr unsigned kSmall = 15;
  const std::size_t limbs = (8 * width + kSmall - 1) / kSmall;
  std::vector<std::int16_t> limb(kPair * limbs * kN);
  for (std::size_t f = 0; f < kPair; ++f)
    for (std::size_t i = 0; i < kN; ++i) {
      u128 value = 0;
      std::memcpy(&value, part.data() + (f * kN + i) * width, width);
      for (std::size_t l = 0; l < limbs; ++l, value >>= kSmall)
        limb[(f * limbs + l) * kN + i] = static_cast<std::int16_t>(value & ((1 << kSmall) - 1));
    }
  std::vector<u64> random(kPair * slots);
  Chacha source(noise_key, 0);
  for (u64& word : random) word = source.next();
  const unsigned drop = bits - static_cast<unsigned>(8 * mask_bytes);
  const u64 kept = (u64{1} << (8 * mask_bytes)) - 1;
  spread(slots, threads, 1, [&](std::size_t slot, void* room) {
    auto* factor = static_cast<std::int16_t*>(room);
    const std::int8_t* own = hiding.data() + static_cast<std::size_t>(mask.data()[slot]) * kN;
    for (std::size_t i = 0; i < kN; ++i) factor[i] = own[i];
    for (std::size_t f = 0; f < kPair; ++f) {
      const u64* sum = sums.data() + (slot * kPair + f) * 2;
      u128 value = sum[0] + (static_cast<u128>(sum[1]) << kLimbBits);
      for (std::size_t l = 0; l < limbs; ++l)
        value += static_cast<u128>(static_cast<__int128>(of.dot(factor, &limb[(f * limbs + l) * kN]))) << (kSmall * l);
      const auto flood = static_cast<std::int64_t>(random[f * slots + slot] >> (63 - log_flood)) - (std::int64_t{1} << log_flood);
      value += static_cast<u128>(static_cast<__int128>(flood));
      if (added.shape(0)) value += static_cast<u128>(static_cast<__int128>(added.data()[f * slots + slot])) << log_delta;
      if (drop) value += static_cast<u128>(1) << (drop - 1);
      out.data()[f * slots + slot] = static_cast<u64>(value >> drop) & kept;
    }
  });
}

// Answers (2, slots) under the masks (all slots, bytes, N) that `mask` names, to sums (slots, 2).
void unmask(In2<u64> answers, In1<std::int32_t> mask, In3<std::uint8_t> masks, const nb::bytes& key, unsigned log_delta,
            unsigned bits, const std::string& engine, Out2<std::int64_t> out, std::size_t threads) {
  const MaskEngine& of = engine_named(engine);
  const std::size_t slots = answers.shape(1), bytes = masks.shape(1);
  checked_width(bits, log_delta);
  const unsigned drop = bits - static_cast<unsigned>(8 * bytes);
  if (answers.shape(0) != kPair || mask.shape(0) != slots || masks.shape(2) != kN || bytes > kMostMaskBytes ||
      8 * bytes > bits || log_delta <= drop || out.shape(0) != slots || out.shape(1) != kPair)
    throw std::invalid_argument("unmask: shapes do not fit together");
  for (std::size_t slot = 0; slot < slots; ++slot)
    if (mask.data()[slot] < 0 || static_cast<std::size_t>(mask.data()[slot]) >= masks.shape(0))
      throw std::invalid_argument("unmask: there is no such mask");
  const std::uint8_t* secret_key = seed_of(key);
  const nb::gil_scoped_release released;
  const Words secrets(1);
  auto* secret = static_cast<std::int16_t*>(secrets.at());
  std::int8_t s[kN];
  for (std::size_t f = 0; f < kPair; ++f) {
    secret_of(secret_key, f, s);
    for (std::size_t i = 0; i < kN; ++i) secret[f * kN + i] = s[i];
  }
  std::memset(s, 0, sizeof s);
  const unsigned scale = log_delta - drop, shift = 64 - static_cast<unsigned>(8 * bytes);
  spread(slots, threads, 1, [&](std::size_t slot, void* room) {
    auto* limb = static_cast<std::int16_t*>(room);
    u64 value[kPair] = {answers.data()[slot], answers.data()[slots + slot]};
    const std::uint8_t* own = masks.data() + static_cast<std::size_t>(mask.data()[slot]) * bytes * kN;
    for (std::size_t byte = 0; byte < bytes; ++byte) {
      for (std::size_t i = 0; i < kN; ++i) limb[i] = own[byte * kN + i];
      for (std::size_t f = 0; f < kPair; ++f)
        value[f] += static_cast<u64>(static_cast<std::int64_t>(of.dot(limb, secret + f * kN))) << (8 * byte);
    }
    for (std::size_t f = 0; f < kPair; ++f) {
      const std::int64_t centred = static_cast<std::int64_t>(value[f] << shift) >> shift;
      out.data()[slot * kPair + f] = (centred + (std::int64_t{1} << (scale - 1))) >> scale;
    }
  });
}

}  // namespace

void bind_masks(nb::module_& module) {
  nb::class_<Masks>(module, "LatticeMasks")
      .def(nb::init<const nb::bytes&, std::size_t, const std::string&>())
      .def("encrypt", &Masks::encrypt)
      .def("make", &Masks::make<std::uint8_t>)
      .def("make", &Masks::make<std::uint16_t>);
  module.def("lattice_add_rows", &add_rows<std::uint8_t>);
  module.def("lattice_add_rows", &add_rows<std::uint16_t>);
  module.def("lattice_answer", &answer);
  module.def("lattice_unmask", &unmask);
}
