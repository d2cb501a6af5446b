// The negacyclic number-theoretic transform, written over `Lanes`.
//
// Encoded residues are in bit-reversed order. In memory, blocks of lanes x lanes residues are transposed, which saves
// transposing them back in the last layers; `place` is the position of a residue.
#pragma once

#include <cstring>

#include "ring.h"

namespace {

template <class Ring>
struct alignas(64) TransformOf {
  static constexpr std::size_t kLogN = Ring::kLogN, kN = Ring::kN;
  using Word = Lanes::Word;
  using V = Lanes::V;
  static constexpr std::size_t kL = Lanes::kCount, kBlock = kL * kL;
  static constexpr std::size_t kTail = kL - 1;  // factors of a block's last layers: 1 + 2 + 4, for eight lanes

  struct alignas(64) Factors {
    Word value[kN], quotient[kN];
    Word tail_value[kN / kBlock][kTail ? kTail : 1][kL], tail_quotient[kN / kBlock][kTail ? kTail : 1][kL];

    void make(const u64* powers, const Prime& prime) {
      for (std::size_t i = 0; i < kN; ++i) value[i] = Lanes::word(powers[i], prime), quotient[i] = Lanes::quotient(powers[i], prime);
      for (std::size_t block = 0; block < kN / kBlock; ++block)
        for (std::size_t layer = 0, at = 0; layer < Lanes::kLogCount; ++layer)
          for (std::size_t part = 0; part < (std::size_t{1} << layer); ++part, ++at)
            for (std::size_t lane = 0; lane < kL; ++lane) {
              const std::size_t from = (kN / kL << layer) + ((block * kL + lane) << layer) + part;
              tail_value[block][at][lane] = value[from], tail_quotient[block][at][lane] = quotient[from];
            }
    }
    Lanes::Factor tail(std::size_t block, std::size_t at) const {
      return Lanes::factors(tail_value[block][at], tail_quotient[block][at]);
    }
  };

  Factors forward_, inverse_;
  std::size_t which;
  Prime prime;
  Lanes lanes;
  alignas(64) Word inverse_n[2];

  explicit TransformOf(std::size_t of) : which(of), prime(Ring::kPrime[of]), lanes(Ring::kPrime[of]) {
    const Roots<kN>& table = Ring::roots(which);
    forward_.make(table.forward, prime);
    inverse_.make(table.inverse, prime);
    inverse_n[0] = Lanes::word(table.inverse_n, prime);
    inverse_n[1] = Lanes::quotient(table.inverse_n, prime);
  }

  static constexpr std::size_t place(std::size_t i) {
    const std::size_t inside = i % kBlock;
    return i - inside + inside % kL * kL + inside / kL;
  }

  // In place, coefficients to residues; the first `skip` layers are already done. Results are below p.
  __attribute__((noinline)) void forward(Word* a, std::size_t skip) const {
    const Lanes own = lanes;  // a copy that stores to `a` cannot change, so it stays in registers
    std::size_t layer = skip;
    if ((kLogN - Lanes::kLogCount - skip) % 2) forward_layer(own, a, layer++);
    for (; layer < kLogN - Lanes::kLogCount; layer += 2) forward_two_layers(own, a, layer);
    for (std::size_t block = 0; block < kN / kBlock; ++block) {
      Word* block_at = a + block * kBlock;
      V r[kL];
      for (std::size_t i = 0; i < kL; ++i) r[i] = Lanes::load(block_at + i * kL);
      Lanes::transpose(r);
      std::size_t factor = 0;
      for (std::size_t half = kL / 2; half; half /= 2)
        for (std::size_t start = 0; start < kL; start += 2 * half, ++factor) {
          const Lanes::Factor w = forward_.tail(block, factor);
          for (std::size_t i = start; i < start + half; ++i) own.template forward<true>(r[i], r[i + half], w);
        }
      for (std::size_t i = 0; i < kL; ++i) Lanes::store(block_at + i * kL, own.finish(r[i]));
    }
  }

  // In place, residues to coefficients. Results are below p.
  void inverse(Word* a) const { inverse_below(a, kN); }

  // The same for the coefficients below `count` only; others are overwritten. Layers that join far coefficients need
  // only their sums.
  __attribute__((noinline)) void inverse_below(Word* a, std::size_t count) const {
    const Lanes own = lanes;
    for (std::size_t block = 0; block < kN / kBlock; ++block) {
      Word* block_at = a + block * kBlock;
      V r[kL];
      for (std::size_t i = 0; i < kL; ++i) r[i] = Lanes::load(block_at + i * kL);
      for (std::size_t half = 1, factor = kTail; half < kL; half *= 2) {
        factor -= kL / (2 * half);
        for (std::size_t start = 0, part = factor; start < kL; start += 2 * half, ++part) {
          const Lanes::Factor w = inverse_.tail(block, part);
          for (std::size_t i = start; i < start + half; ++i) own.inverse(r[i], r[i + half], w);
        }
      }
      Lanes::transpose(r);
      for (std::size_t i = 0; i < kL; ++i) Lanes::store(block_at + i * kL, r[i]);
    }
    std::size_t half = kL;
    if ((kLogN - Lanes::kLogCount) % 2) {
      for (std::size_t i = 0; i < kN / (2 * half); ++i) {
        V u = Lanes::load(a + 2 * i * half), v = Lanes::load(a + (2 * i + 1) * half);
        own.inverse(u, v, at(inverse_, kN / (2 * half) + i));
        Lanes::store(a + 2 * i * half, u), Lanes::store(a + (2 * i + 1) * half, v);
      }
      half *= 2;
    }
    for (; half < kN && half < count; half *= 4) inverse_two_layers(own, a, half);
    const Lanes::Factor scale = Lanes::factor(&inverse_n[0], &inverse_n[1]);
    for (std::size_t j = 0; j < (half < kN ? half : kN); j += kL) {
      V sum = Lanes::load(a + j);
      for (std::size_t far = half; far < kN; far += half) sum = own.finish(Lanes::plus(sum, Lanes::load(a + far + j)));
      Lanes::store(a + j, own.finish(own.times(sum, scale)));
    }
  }

  // Only the coefficients at run-1, 2 run-1, ...: all layers except the last few need only differences, and each
  // halves the number of values. `a` is overwritten.
  __attribute__((noinline)) void inverse_at(Word* a, std::size_t run, u64* out) const {
    const Lanes own = lanes;
    std::size_t length = kN / kL;
    for (std::size_t block = 0; block < kN / kBlock; ++block) {
      V r[kL];
      for (std::size_t i = 0; i < kL; ++i) r[i] = Lanes::load(a + block * kBlock + i * kL);
      for (std::size_t count = kL / 2, factor = kTail; count; count /= 2) {
        factor -= count;
        for (std::size_t i = 0; i < count; ++i)
          r[i] = own.difference_times(r[2 * i], r[2 * i + 1], inverse_.tail(block, factor + i));
      }
      Lanes::store(a + block * kL, r[0]);
    }
    for (; length > kN / run; length /= 2)
      for (std::size_t i = 0; i < length / 2; i += kL) {
        V even = Lanes::load(a + 2 * i), odd = Lanes::load(a + 2 * i + kL);
        Lanes::pairs(even, odd);
        const std::size_t at = length / 2 + i;
        Lanes::store(a + i, own.difference_times(even, odd, Lanes::factors(&inverse_.value[at], &inverse_.quotient[at])));
      }
    const std::size_t count = kN / run;
    for (std::size_t j = 0; j < count; j += kL) Lanes::store(a + j, own.finish(Lanes::load(a + j)));
    for (std::size_t j = 0; j < count; ++j) out[j] = Lanes::number(a[j], prime);
    const Roots<kN>& table = Ring::roots(which);
    for (std::size_t half = 1; half < count; half *= 2)
      for (std::size_t i = 0; i < count / (2 * half); ++i)
        for (std::size_t j = 2 * i * half; j < (2 * i + 1) * half; ++j) {
          const u64 x = out[j], y = out[j + half];
          out[j] = add(x, y, prime);
          out[j + half] = multiply(subtract(x, y, prime), table.inverse[count / (2 * half) + i], prime);
        }
    for (std::size_t j = 0; j < count; ++j) out[j] = multiply(out[j], table.inverse_n, prime);
  }

 private:
  static Lanes::Factor at(const Factors& of, std::size_t i) { return Lanes::factor(&of.value[i], &of.quotient[i]); }

  void forward_layer(const Lanes& own, Word* a, std::size_t layer) const {
    const std::size_t parts = std::size_t{1} << layer, half = kN / (2 * parts);
    for (std::size_t i = 0; i < parts; ++i) {
      const Lanes::Factor w = at(forward_, parts + i);
      Word *x = a + 2 * i * half, *y = x + half;
      for (std::size_t j = 0; j < half; j += kL) {
        V u = Lanes::load(x + j), v = Lanes::load(y + j);
        own.template forward<true>(u, v, w);
        Lanes::store(x + j, u), Lanes::store(y + j, v);
      }
    }
  }

  // Two layers in one pass over memory.
  void forward_two_layers(const Lanes& own, Word* a, std::size_t layer) const {
    const std::size_t parts = std::size_t{1} << layer, step = kN / (4 * parts);
    for (std::size_t i = 0; i < parts; ++i) {
      const Lanes::Factor w = at(forward_, parts + i);
      const Lanes::Factor left = at(forward_, 2 * (parts + i)), right = at(forward_, 2 * (parts + i) + 1);
      Word* x = a + 4 * i * step;
      for (std::size_t j = 0; j < step; j += kL) {
        V r[4];
        for (std::size_t k = 0; k < 4; ++k) r[k] = Lanes::load(x + k * step + j);
        own.template forward<true>(r[0], r[2], w), own.template forward<true>(r[1], r[3], w);
        own.template forward<false>(r[0], r[1], left), own.template forward<false>(r[2], r[3], right);
        for (std::size_t k = 0; k < 4; ++k) Lanes::store(x + k * step + j, r[k]);
      }
    }
  }

  void inverse_two_layers(const Lanes& own, Word* a, std::size_t step) const {
    const std::size_t parts = kN / (4 * step);
    for (std::size_t i = 0; i < parts; ++i) {
      const Lanes::Factor w = at(inverse_, parts + i);
      const Lanes::Factor left = at(inverse_, 2 * (parts + i)), right = at(inverse_, 2 * (parts + i) + 1);
      Word* x = a + 4 * i * step;
      for (std::size_t j = 0; j < step; j += kL) {
        V r[4];
        for (std::size_t k = 0; k < 4; ++k) r[k] = Lanes::load(x + k * step + j);
        own.inverse(r[0], r[1], left), own.inverse(r[2], r[3], right);
        own.inverse(r[0], r[2], w), own.inverse(r[1], r[3], w);
        for (std::size_t k = 0; k < 4; ++k) Lanes::store(x + k * step + j, r[k]);
      }
    }
  }
};

}  // namespace
