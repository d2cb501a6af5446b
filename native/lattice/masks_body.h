// Reusable masks over `Lanes`: see masks_engine.h. Local to the including file, like engine_body.h.
#pragma once

#include "engine_body.h"
#include "masks_engine.h"

namespace {

// A number modulo q, given by its residues, as a fraction of q: round(z 2^bits / q) modulo 2^bits.
// z / q is the fractional part of x0 c0 + x1 c1 with c_j = (q / p_j)^-1 / p_j, here with 192 bits after the point.
struct Fraction {
  u64 part[kPrimes][3];  // lowest first
  Fraction() {
    for (std::size_t j = 0; j < kPrimes; ++j) {
      const Prime& prime = kPrime[j];
      u64 rest = power(reduce(kPrime[1 - j].p, prime), prime.p - 2, prime);
      for (std::size_t limb = 3; limb-- > 0;) {
        const u128 wide = static_cast<u128>(rest) << 64;
        part[j][limb] = static_cast<u64>(wide / prime.p), rest = static_cast<u64>(wide % prime.p);
      }
    }
  }
  u128 rounded(u64 x0, u64 x1, unsigned bits) const {
    u64 low[kPrimes];
    u128 high[kPrimes];
    const u64 x[kPrimes] = {x0, x1};
    for (std::size_t j = 0; j < kPrimes; ++j) {
      const u128 first = static_cast<u128>(x[j]) * part[j][0];
      low[j] = static_cast<u64>(first);
      high[j] = static_cast<u128>(x[j]) * part[j][1] + static_cast<u64>(first >> 64);
      high[j] += static_cast<u128>(x[j] * part[j][2]) << 64;
    }
    const u128 sum = high[0] + high[1] + (low[0] + low[1] < low[0]);
    return (sum + (static_cast<u128>(1) << (127 - bits))) >> (128 - bits);
  }
};

const Fraction& fraction() {
  static const Fraction made;
  return made;
}

void expand_uniform(const std::uint8_t* seed, u64 number, void* out) {
  for (std::size_t j = 0; j < kPrimes; ++j)
    uniform(seed, number * kPrimes + j, kPrime[j], static_cast<Word*>(out) + j * kN);
}

void encrypt_dense(const DenseJob& job) {
  const Fraction& of = fraction();
  Word *product = static_cast<Word*>(job.scratch), *error = product + 2 * kN;
  Chacha source(job.noise_key, job.noise_stream);
  errors(source, error, error + kN);
  for (std::size_t j = 0; j < kPrimes; ++j) {
    const Transform& transform = transform_of(j);
    multiply_add(transform.lanes, static_cast<const Word*>(job.a) + j * kN,
                 static_cast<const Word*>(job.secret) + j * kN, nullptr, product + j * kN);
    transform.inverse(product + j * kN);
  }
  const std::size_t width = (job.bits + 7) / 8;
  const u128 mask = (static_cast<u128>(1) << job.bits) - 1;
  for (std::size_t i = 0; i < job.count; ++i) {
    u64 x[kPrimes];
    for (std::size_t j = 0; j < kPrimes; ++j)
      x[j] = subtract(Lanes::number(error[j * kN + i], kPrime[j]), Lanes::number(product[j * kN + i], kPrime[j]), kPrime[j]);
    u128 value = of.rounded(x[0], x[1], job.bits);
    if (job.values) value += static_cast<u128>(static_cast<__int128>(job.values[i * kPair])) << job.log_delta;
    value &= mask;
    // Two stores that overlap: a value has 8 to 12 bytes.
    const u64 low = static_cast<u64>(value), high = static_cast<u64>(value >> (8 * (width - 8)));
    std::uint8_t* at = job.out + i * job.stride;
    std::memcpy(at, &low, 8), std::memcpy(at + width - 8, &high, 8);
  }
}

// Coefficients of -1, 0 and 1, transformed and prepared as factors.
void prepare_signs(const std::int8_t* signs, std::size_t j, Word* out) {
  const Prime& prime = kPrime[j];
  const Word word[3] = {Lanes::word(Lanes::prepared(prime.p - 1, prime), prime), Word{},
                        Lanes::word(Lanes::prepared(1, prime), prime)};
  for (std::size_t i = 0; i < kN; ++i) out[i] = word[signs[i] + 1];
  transform_of(j).forward(out, 0);
}

void make_mask(const MaskJob& job) {
  Word *sum = static_cast<Word*>(job.scratch), *error = sum + 2 * kN, *factor = error + 2 * kN;
  const Word* a = static_cast<const Word*>(job.a);
  Chacha source(job.noise_key, job.noise_stream);
  errors(source, error, error + kN);
  std::int8_t signs[kN];
  ternary(source, signs);
  for (std::size_t i = 0; i < kN; ++i) job.hiding[i] = i ? static_cast<std::int8_t>(-signs[kN - i]) : signs[0];
  for (std::size_t j = 0; j < kPrimes; ++j) {
    prepare_signs(signs, j, factor);
    multiply_add(transform_of(j).lanes, a + j * kN, factor, nullptr, sum + j * kN);
  }
  for (std::size_t first = 0; first < job.rows; first += kN) {
    a += kPrimes * kN;
    // The sum over the slot's rows i of X^-i.
    std::memset(signs, 0, sizeof signs);
    const std::size_t count = job.rows - first < kN ? job.rows - first : kN;
    signs[0] = job.bins[first] == job.bin;
    for (std::size_t i = 1; i < count; ++i) signs[kN - i] = static_cast<std::int8_t>(-(job.bins[first + i] == job.bin));
    for (std::size_t j = 0; j < kPrimes; ++j) {
      prepare_signs(signs, j, factor);
      multiply_add(transform_of(j).lanes, a + j * kN, factor, sum + j * kN, sum + j * kN);
    }
  }
  for (std::size_t j = 0; j < kPrimes; ++j) transform_of(j).inverse(sum + j * kN);
  const Fraction& of = fraction();
  for (std::size_t i = 0; i < kN; ++i) {
    // The constant coefficient of a product with s is the inner product of s and these.
    const std::size_t from = i ? kN - i : 0;
    u64 x[kPrimes];
    for (std::size_t j = 0; j < kPrimes; ++j) {
      x[j] = add(Lanes::number(sum[j * kN + from], kPrime[j]), Lanes::number(error[j * kN + from], kPrime[j]), kPrime[j]);
      if (i) x[j] = subtract(0, x[j], kPrime[j]);
    }
    u64 value = static_cast<u64>(of.rounded(x[0], x[1], static_cast<unsigned>(8 * job.bytes)));
    for (std::size_t byte = 0; byte < job.bytes; ++byte, value >>= 8) job.mask[byte * kN + i] = static_cast<std::uint8_t>(value);
  }
}

template <class Bin>
void add_rows(const std::uint8_t* dense, std::size_t width, const Bin* bins, const std::int32_t* start,
              std::size_t features, std::size_t rows, u64* out, std::size_t slots) {
  typedef u64 Four __attribute__((vector_size(32), aligned(8), may_alias));
  constexpr u64 kLow = (u64{1} << kLimbBits) - 1;
  constexpr std::size_t kAtOnce = std::size_t{1} << (63 - kLimbBits);  // rows before a low limb may overflow
  Four* sums = reinterpret_cast<Four*>(out);
  const unsigned skip = static_cast<unsigned>(8 * (14 - width));  // of the last eight bytes
  for (std::size_t first = 0; first < rows; first += kAtOnce) {
    const std::size_t last = rows - first < kAtOnce ? rows : first + kAtOnce;
    for (std::size_t row = first; row < last; ++row) {
      u64 limb[4];
      for (std::size_t f = 0; f < kPair; ++f) {
        const std::uint8_t* at = dense + (row * kPair + f) * width;
        std::memcpy(&limb[2 * f], at, 8), std::memcpy(&limb[2 * f + 1], at + width - 8, 8);
        limb[2 * f] &= kLow, limb[2 * f + 1] >>= skip;
      }
      const Four value = {limb[0], limb[1], limb[2], limb[3]};
      const Bin* bin = bins + row * features;
      for (std::size_t f = 0; f < features; ++f) sums[static_cast<std::size_t>(start[f]) + bin[f]] += value;
    }
    for (std::size_t slot = 0; slot < slots; ++slot)
      for (std::size_t f = 0; f < kPair; ++f) {
        u64* limb = out + (slot * kPair + f) * 2;
        limb[1] += limb[0] >> kLimbBits, limb[0] &= kLow;
      }
  }
}

std::int32_t dot(const std::int16_t* a, const std::int16_t* b) {
  std::int32_t sum = 0;
  for (std::size_t i = 0; i < kN; ++i) sum += static_cast<std::int32_t>(a[i]) * b[i];
  return sum;
}

}  // namespace

#define LATTICE_MASK_ENGINE(supported)                                                              \
  {Lanes::kName, supported,              expand_uniform,          prepare_secret, encrypt_dense,    \
   make_mask,    add_rows<std::uint8_t>, add_rows<std::uint16_t>, dot}
