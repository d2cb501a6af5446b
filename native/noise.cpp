// Gaussian noise from a ChaCha20 key stream, and the per-row steps of both parties of MaskedXGBoost.
//
// Every stream of noise has its own (key, nonce), so streams can be generated in any order and on any thread.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "chacha.h"
#include "kernels.h"

namespace {

using Lanes = std::uint32_t __attribute__((vector_size(32)));  // the same word of eight consecutive blocks
constexpr std::size_t kBatch = sizeof(Lanes) / 4 * chacha::kState;

void eight_blocks_anywhere(std::uint32_t* state, std::uint32_t* words) { chacha::next_blocks<Lanes>(state, words); }
#if defined(__x86_64__)
// The same words in half the time, if the machine has registers of eight lanes.
__attribute__((target("avx2"))) void eight_blocks_avx2(std::uint32_t* state, std::uint32_t* words) {
  chacha::next_blocks<Lanes>(state, words);
}
const auto kEightBlocks = __builtin_cpu_supports("avx2") ? eight_blocks_avx2 : eight_blocks_anywhere;
#else
const auto kEightBlocks = eight_blocks_anywhere;
#endif

inline std::uint32_t as_bits(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float as_float(std::uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

class ChaCha20 {
 public:
  ChaCha20(const std::uint8_t* key, std::uint32_t nonce0, std::uint32_t nonce1, std::uint32_t nonce2) {
    chacha::open_state(key, state_);
    state_[13] = nonce0, state_[14] = nonce1, state_[15] = nonce2;
  }

  void fill(std::uint32_t* batch) { kEightBlocks(state_, batch); }  // of kBatch words
  std::uint32_t next() {
    if (at_ == kBatch) fill(words_), at_ = 0;
    return words_[at_++];
  }
  double uniform() { return (next() + 0.5) * 0x1p-32; }  // in (0, 1)

 private:
  std::uint32_t state_[chacha::kState], words_[kBatch];
  std::size_t at_ = kBatch;
};

// The ziggurat of Marsaglia and Tsang: 128 layers of equal area under exp(-x^2/2). One word of the stream gives the
// layer (7 bits), the sign (1 bit) and the position within the layer (24 bits, as many as a float32 holds).
struct Ziggurat {
  static constexpr int kLayers = 128;
  static constexpr double kTail = 3.442619855899, kArea = 9.91256303526217e-3, kPlaces = 16777216.0;
  std::uint32_t inside[kLayers];  // below this position a point lies under the curve at any height
  float width[kLayers];           // of one position
  double height[kLayers];

  Ziggurat() {
    double edge = kTail, above = kTail;
    const double base = kArea / std::exp(-0.5 * edge * edge);
    inside[0] = static_cast<std::uint32_t>(edge / base * kPlaces), inside[1] = 0;
    width[0] = static_cast<float>(base / kPlaces), width[kLayers - 1] = static_cast<float>(edge / kPlaces);
    height[0] = 1.0, height[kLayers - 1] = std::exp(-0.5 * edge * edge);
    for (int i = kLayers - 2; i > 0; --i) {
      edge = std::sqrt(-2.0 * std::log(kArea / edge + std::exp(-0.5 * edge * edge)));
      inside[i + 1] = static_cast<std::uint32_t>(edge / above * kPlaces);
      above = edge;
      height[i] = std::exp(-0.5 * edge * edge);
      width[i] = static_cast<float>(edge / kPlaces);
    }
  }

  float at(std::uint32_t word) const {
    const float x = static_cast<float>(static_cast<std::int32_t>(word >> 8)) * width[word & 127];
    return as_float(as_bits(x) | (word & 128) << 24);  // a branch on a random sign would be mispredicted half the time
  }
  bool sure(std::uint32_t word) const { return word >> 8 < inside[word & 127]; }

  // Resolve an undecided word: keep it, move it to the tail, or draw again.
  float settled(std::uint32_t word, ChaCha20& spare) const {
    for (;; word = spare.next()) {
      const float x = at(word);
      const std::uint32_t layer = word & 127;
      if (sure(word)) return x;
      if (layer == 0) {  // beyond the last layer: Marsaglia's exact tail
        double beyond, other;
        do {
          beyond = -std::log(spare.uniform()) / kTail;
          other = -std::log(spare.uniform());
        } while (other + other <= beyond * beyond);
        const float far = static_cast<float>(kTail + beyond);
        return word & 128 ? -far : far;
      }
      const double point = height[layer] + spare.uniform() * (height[layer - 1] - height[layer]);
      if (point < std::exp(-0.5 * static_cast<double>(x) * static_cast<double>(x))) return x;
    }
  }

  // Standard normals of stream (nonce0, nonce1). The few undecided words are resolved from a spare stream, so
  // that the others need no branch.
  void fill(const std::uint8_t* key, std::uint32_t nonce0, std::uint32_t nonce1, float* out, std::size_t count) const {
    ChaCha20 stream(key, nonce0, nonce1, 0), spare(key, nonce0, nonce1, 1);
    std::uint32_t words[kBatch], unsure[kBatch];
    for (std::size_t from = 0; from < count; from += kBatch) {
      const std::size_t length = std::min(kBatch, count - from);
      stream.fill(words);
      std::size_t left = 0;
      for (std::size_t i = 0; i < length; ++i) {
        out[from + i] = at(words[i]);
        unsure[left] = static_cast<std::uint32_t>(i);
        left += !sure(words[i]);
      }
      for (std::size_t i = 0; i < left; ++i) out[from + unsure[i]] = settled(words[unsure[i]], spare);
    }
  }
};

const Ziggurat kZiggurat;

void check_key(const In1<std::uint8_t>& key) {
  if (key.shape(0) != 32) throw std::invalid_argument("a key has 32 bytes");
}

// Independent standard normals; row k of `out` is stream (k, 0) of the key.
void normals(In1<std::uint8_t> key, Out2<float> out) {
  check_key(key);
  for (std::size_t k = 0; k < out.shape(0); ++k)
    kZiggurat.fill(key.data(), static_cast<std::uint32_t>(k), 0, out.data() + k * out.shape(1), out.shape(1));
}

// The rows of one node and the candidates that split it: candidate c sends bin b of column[c] left if
// goes_left(c, b) is 1. `members` fills one byte per row.
template <class Bin>
struct Candidates {
  const Bin* bins;
  std::size_t width;
  const std::int32_t* rows;
  std::size_t count;
  const std::int32_t* column;
  const std::uint8_t* goes_left;
  std::size_t widest;

  void members(std::size_t candidate, std::uint8_t* member) const {
    const std::uint8_t* left = goes_left + candidate * widest;
    const Bin* at = bins + column[candidate];
    for (std::size_t i = 0; i < count; ++i) member[i] = left[at[static_cast<std::size_t>(rows[i]) * width]];
  }
};

template <class Bin>
Candidates<Bin> candidates_of(const In2<Bin>& bins, const In1<std::int32_t>& rows, const In1<std::int32_t>& column,
                              const In2<std::uint8_t>& goes_left, const std::size_t blocks, const std::size_t length) {
  if (goes_left.shape(0) != column.shape(0) || blocks != column.shape(0) || length != rows.shape(0))
    throw std::invalid_argument("candidates: shapes do not fit together");
  for (std::size_t c = 0; c < column.shape(0); ++c)
    if (column.data()[c] < 0 || static_cast<std::size_t>(column.data()[c]) >= bins.shape(1))
      throw std::invalid_argument("candidates: no such column");
  for (std::size_t i = 0; i < rows.shape(0); ++i)
    if (rows.data()[i] < 0 || static_cast<std::size_t>(rows.data()[i]) >= bins.shape(0))
      throw std::invalid_argument("candidates: no such row");
  return {bins.data(),   bins.shape(1),    rows.data(),        rows.shape(0),
          column.data(), goes_left.data(), goes_left.shape(1)};
}

// term(0) + ... + term(count - 1), as four independent sums, so that additions need not wait for each other.
template <class Term>
double sum_of(std::size_t count, Term term) {
  double sum[4] = {0, 0, 0, 0};
  std::size_t i = 0;
  for (; i + 4 <= count; i += 4)
    for (std::size_t k = 0; k < 4; ++k) sum[k] += term(i + k);
  for (; i < count; ++i) sum[0] += term(i);
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// MaskedXGBoost Alg. 1. masks (candidates, W, rows); candidate c, vector w is stream (first + c, w) of the key.
//
// With unit normals e, an entry of the active set is own * e_k - last * e_{k-1}, cyclically; an entry of the inactive
// set is alone * e_k. With the right coefficients, these have the covariance of the published sum of two noises (eqs.
// 12 and 13) with one draw per entry.
template <class Bin>
void make_masks(In2<Bin> bins, In1<std::int32_t> rows, In1<std::int32_t> column, In2<std::uint8_t> goes_left,
                In2<float> scales, In1<std::uint8_t> key, std::uint32_t first, Out3<float> masks, std::size_t threads) {
  check_key(key);
  const auto node = candidates_of(bins, rows, column, goes_left, masks.shape(0), masks.shape(2));
  if (scales.shape(0) != column.shape(0) || scales.shape(1) != 3)
    throw std::invalid_argument("make_masks: shapes do not fit together");
  const std::size_t every = masks.shape(0), vectors = masks.shape(1), count = node.count;
  const std::size_t parts = std::min(useful_threads(every * vectors * count, threads), std::max<std::size_t>(every, 1));
  in_parallel(parts, [&](std::size_t part) {
    std::vector<std::uint8_t> member(count);
    for (std::size_t c = every * part / parts; c < every * (part + 1) / parts; ++c) {
      node.members(c, member.data());
      const float* scale = scales.data() + 3 * c;
      const float here[2] = {scale[2], scale[0]}, before[2] = {0.0f, scale[1]};
      std::size_t last = count;
      while (last > 0 && !member[last - 1]) --last;
      for (std::size_t w = 0; w < vectors; ++w) {
        float* out = masks.data() + (c * vectors + w) * count;
        kZiggurat.fill(key.data(), first + static_cast<std::uint32_t>(c), static_cast<std::uint32_t>(w), out, count);
        std::uint32_t previous = last > 0 ? as_bits(out[last - 1]) : 0;
        for (std::size_t i = 0; i < count; ++i) {
          const float own = out[i];
          out[i] = here[member[i]] * own - before[member[i]] * as_float(previous);
          const std::uint32_t chosen = 0u - member[i];  // all ones for a member: no branch
          previous = (as_bits(own) & chosen) | (previous & ~chosen);
        }
      }
    }
  });
}

// MaskedXGBoost Alg. 2, line 3: noised (candidates, K, rows) = values (K, rows) + masks (candidates, W, rows) by
// coefficients (candidates, K, W). grams (candidates, W, W) are the masks' inner products, by which they are checked.
void add_masks(In3<float> masks, In2<double> values, In3<double> coefficients, Out3<float> noised,
               Out3<double> grams, std::size_t threads) {
  const std::size_t every = masks.shape(0), vectors = masks.shape(1), count = masks.shape(2), kinds = values.shape(0);
  if (values.shape(1) != count || coefficients.shape(0) != every || coefficients.shape(1) != kinds ||
      coefficients.shape(2) != vectors || noised.shape(0) != every || noised.shape(1) != kinds ||
      noised.shape(2) != count || grams.shape(0) != every || grams.shape(1) != vectors || grams.shape(2) != vectors)
    throw std::invalid_argument("add_masks: shapes do not fit together");
  constexpr std::size_t kBlock = 512;  // rows whose sums fit into the L1 cache
  const std::size_t parts = std::min(useful_threads(every * vectors * count, threads), std::max<std::size_t>(every, 1));
  in_parallel(parts, [&](std::size_t part) {
    double sum[kBlock];
    for (std::size_t c = every * part / parts; c < every * (part + 1) / parts; ++c) {
      const float* mask = masks.data() + c * vectors * count;
      double* gram = grams.data() + c * vectors * vectors;
      std::fill_n(gram, vectors * vectors, 0.0);
      for (std::size_t from = 0; from < count; from += kBlock) {
        const std::size_t length = std::min(kBlock, count - from);
        for (std::size_t kind = 0; kind < kinds; ++kind) {
          std::copy_n(values.data() + kind * count + from, length, sum);
          for (std::size_t w = 0; w < vectors; ++w) {
            const double by = coefficients.data()[(c * kinds + kind) * vectors + w];
            const float* column = mask + w * count + from;
            for (std::size_t i = 0; i < length; ++i) sum[i] += by * static_cast<double>(column[i]);
          }
          float* out = noised.data() + (c * kinds + kind) * count + from;
          for (std::size_t i = 0; i < length; ++i) out[i] = static_cast<float>(sum[i]);
        }
        for (std::size_t a = 0; a < vectors; ++a)
          for (std::size_t b = 0; b <= a; ++b) {
            const float *x = mask + a * count + from, *y = mask + b * count + from;
            gram[a * vectors + b] += sum_of(length, [&](std::size_t i) {
              return static_cast<double>(x[i]) * static_cast<double>(y[i]);
            });
          }
      }
      for (std::size_t a = 0; a < vectors; ++a)
        for (std::size_t b = 0; b < a; ++b) gram[b * vectors + a] = gram[a * vectors + b];
    }
  });
}

// MaskedXGBoost Alg. 3, line 6: out (candidates, K) sums noised (candidates, K, rows) over each active set.
template <class Bin>
void left_sums(In2<Bin> bins, In1<std::int32_t> rows, In1<std::int32_t> column, In2<std::uint8_t> goes_left,
               In3<float> noised, Out2<double> out, std::size_t threads) {
  const auto node = candidates_of(bins, rows, column, goes_left, noised.shape(0), noised.shape(2));
  const std::size_t every = noised.shape(0), kinds = noised.shape(1), count = node.count;
  if (out.shape(0) != every || out.shape(1) != kinds)
    throw std::invalid_argument("left_sums: shapes do not fit together");
  const std::size_t parts = std::min(useful_threads(every * kinds * count, threads), std::max<std::size_t>(every, 1));
  in_parallel(parts, [&](std::size_t part) {
    std::vector<std::uint8_t> member(count);
    for (std::size_t c = every * part / parts; c < every * (part + 1) / parts; ++c) {
      node.members(c, member.data());
      for (std::size_t kind = 0; kind < kinds; ++kind) {
        const float* vector = noised.data() + (c * kinds + kind) * count;
        // A product, not a selection: any entry that is not finite makes the sum not finite.
        out.data()[c * kinds + kind] =
            sum_of(count, [&](std::size_t i) { return static_cast<double>(vector[i]) * member[i]; });
      }
    }
  });
}

}  // namespace

void bind_noise(nb::module_& module) {
  module.def("normals", &normals, nb::call_guard<nb::gil_scoped_release>());
  module.def("make_masks_u8", &make_masks<std::uint8_t>, nb::call_guard<nb::gil_scoped_release>());
  module.def("make_masks_u16", &make_masks<std::uint16_t>, nb::call_guard<nb::gil_scoped_release>());
  module.def("add_masks", &add_masks, nb::call_guard<nb::gil_scoped_release>());
  module.def("left_sums_u8", &left_sums<std::uint8_t>, nb::call_guard<nb::gil_scoped_release>());
  module.def("left_sums_u16", &left_sums<std::uint16_t>, nb::call_guard<nb::gil_scoped_release>());
}
