// An engine of dense ciphertexts over `Lanes`, local to the including file as in engine_body.h, which comes before it.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "bits.h"
#include "expansion_engine.h"

namespace {

using Dense = TransformOf<ExpansionRing>;
using DenseSmall = SmallOf<ExpansionRing::kN>;
constexpr std::size_t kDenseN = ExpansionRing::kN, kModuli = ExpansionRing::kModuli, kSpecial = kModuli;
constexpr std::size_t kAllPrimes = ExpansionRing::kPrimes;

const Dense& dense_of(std::size_t prime) {
  static const Dense made[kAllPrimes] = {Dense(0), Dense(1), Dense(2)};
  return made[prime];
}
const Prime& dense_prime(std::size_t prime) { return ExpansionRing::kPrime[prime]; }

// A constant modulo one prime, with its quotient.
struct Constant {
  Word value[2];
  u64 number;
  Constant(u64 number_, const Prime& prime) : number(number_) {
    value[0] = Lanes::word(number, prime), value[1] = Lanes::quotient(number, prime);
  }
  Lanes::Factor factor() const { return Lanes::factor(&value[0], &value[1]); }
};

const Constant& special_of(std::size_t j) {
  static const Constant made[kModuli] = {{reduce(dense_prime(kSpecial).p, dense_prime(0)), dense_prime(0)},
                                         {reduce(dense_prime(kSpecial).p, dense_prime(1)), dense_prime(1)}};
  return made[j];
}
const Constant& inverse_special(std::size_t j) {
  static const auto inverse = [](std::size_t i) { return power(special_of(i).number, dense_prime(i).p - 2, dense_prime(i)); };
  static const Constant made[kModuli] = {{inverse(0), dense_prime(0)}, {inverse(1), dense_prime(1)}};
  return made[j];
}

// What a step needs besides its key: where sigma takes a value from, and X^(-2^step) at the roots.
struct Step {
  std::uint32_t from[kDenseN];
  alignas(64) Word shift[kAllPrimes][2][kDenseN];

  void make(std::size_t step) {
    const std::size_t power_of_x = (kDenseN >> step) + 1;
    for (std::size_t i = 0; i < kDenseN; ++i) {
      const std::size_t exponent = (2 * reversed(i, ExpansionRing::kLogN) + 1) * power_of_x % (2 * kDenseN);
      from[Dense::place(i)] =
          static_cast<std::uint32_t>(Dense::place(reversed((exponent - 1) / 2, ExpansionRing::kLogN)));
    }
    for (std::size_t j = 0; j < kAllPrimes; ++j) {
      Word *value = shift[j][0], *quotient = shift[j][1];
      std::memset(value, 0, kDenseN * sizeof(Word));
      value[kDenseN - (std::size_t{1} << step)] = Lanes::small(-1, dense_prime(j));
      dense_of(j).forward(value, 0);
      for (std::size_t i = 0; i < kDenseN; ++i)
        quotient[i] = Lanes::quotient(Lanes::number(value[i], dense_prime(j)), dense_prime(j));
    }
  }
};

const Step& step_of(std::size_t step) {
  static const std::unique_ptr<Step[]> made = [] {
    std::unique_ptr<Step[]> steps(new Step[kMostDepth]);
    for (std::size_t i = 0; i < kMostDepth; ++i) steps[i].make(i);
    return steps;
  }();
  return made[step];
}

// Polynomial `prime` of `part` of a ciphertext.
template <class W>
W* polynomial(W* ciphertext, std::size_t part, std::size_t prime) {
  return ciphertext + (part * kAllPrimes + prime) * kDenseN;
}

// The centred residues modulo one prime as values at the roots modulo another.
void lift(const Word* coefficients, std::size_t from, std::size_t to, Word* out) {
  const Lanes lanes = dense_of(to).lanes;
  const typename Lanes::Other other = Lanes::other(dense_prime(from));
  for (std::size_t i = 0; i < kDenseN; i += kL) Lanes::store(out + i, lanes.centred(Lanes::load(coefficients + i), other));
  dense_of(to).forward(out, 0);
}

// --- keys and encryption ------------------------------------------------------------------------------------

void prepare_dense_secret(const std::int8_t* s, void* out) {
  DenseSmall small;
  std::memcpy(small.of, s, kDenseN);
  Word* secret = static_cast<Word*>(out);
  for (std::size_t j = 0; j < kAllPrimes; ++j, secret += kDenseN) {
    small.transformed(dense_of(j), secret);
    for (std::size_t i = 0; i < kDenseN; ++i)
      secret[i] = prepared_word(Lanes::number(secret[i], dense_prime(j)), dense_prime(j));
  }
  std::memset(small.of, 0, sizeof small.of);
  asm volatile("" : : "r"(small.of) : "memory");
}

void key_part(const void* secret, const std::int8_t* image, std::size_t digit, std::size_t primes,
              const std::uint8_t* seed, u64 stream, const std::uint8_t* noise_key, u64 noise_stream, std::uint8_t* out,
              void* scratch) {
  Word *minus_a = static_cast<Word*>(scratch), *part = minus_a + kDenseN;
  Chacha source(noise_key, noise_stream);
  DenseSmall error;
  error.errors(source);
  for (std::size_t j = 0; j < primes; ++j) {
    const Prime& prime = dense_prime(j);
    const Dense& transform = dense_of(j);
    error.words(prime, part);
    if (image && j == digit)
      for (std::size_t i = 0; i < kDenseN; ++i) {
        const u64 scaled = multiply(residue(image[i], prime), special_of(j).number, prime);
        part[i] = transform.lanes.add_word(part[i], Lanes::word(scaled, prime));
      }
    transform.forward(part, 0);
    negated_uniform<Dense>(seed, stream + j, prime, minus_a);
    multiply_add<Dense>(transform.lanes, minus_a, static_cast<const Word*>(secret) + j * kDenseN, part, part);
    pack<true, Dense>(part, prime, out + j * ExpansionRing::kPolyBytes);
  }
}

// Uniform halves are expanded here: an owner that chose them could disable the masking. The public key is scaled by
// the special prime, as the sums are that it hides.
bool prepare_keys(const std::uint8_t* seed, const std::uint8_t* packed, std::size_t depth, void* out) {
  Word* key = static_cast<Word*>(out);
  bool fits = true;
  for (std::size_t part = 0; part < kParts; ++part)
    for (std::size_t j = 0; j < kModuli; ++j, key += kDenseN) {
      const Prime& prime = dense_prime(j);
      if (part == kFamilies)
        uniform<Dense>(seed, j, prime, key);
      else
        fits &= unpack<true, Dense>(packed, prime, key), packed += ExpansionRing::kPolyBytes;
      for (std::size_t i = 0; i < kDenseN; ++i)
        key[i] = prepared_word(multiply(reduce(Lanes::number(key[i], prime), prime), special_of(j).number, prime), prime);
    }
  for (std::size_t of = 0; of < 2 * depth; ++of)  // steps x digits
    for (std::size_t part = 0; part < kParts; ++part)
      for (std::size_t j = 0; j < kAllPrimes; ++j, key += kDenseN) {
        const Prime& prime = dense_prime(j);
        if (part == kFamilies)
          uniform<Dense>(seed, kModuli + of * kAllPrimes + j, prime, key);
        else
          fits &= unpack<true, Dense>(packed, prime, key), packed += ExpansionRing::kPolyBytes;
        for (std::size_t i = 0; i < kDenseN; ++i)
          key[i] = prepared_word(reduce(Lanes::number(key[i], prime), prime), prime);
      }
  return fits;
}

void encrypt_dense(const void* secrets, const Leaf* leaves, std::size_t count, const std::int32_t* const* values,
                   unsigned log_delta, const std::uint8_t* seed, u64 number, const std::uint8_t* noise_key,
                   std::uint8_t* const* out, void* scratch) {
  Word *minus_a = static_cast<Word*>(scratch), *product = minus_a + kDenseN;  // of families x moduli
  const std::unique_ptr<DenseSmall[]> error(new DenseSmall[kFamilies]);
  for (std::size_t f = 0; f < kFamilies; ++f) {
    Chacha source(noise_key, number * kFamilies + f);
    error[f].errors(source);
  }
  for (std::size_t j = 0; j < kModuli; ++j) {
    negated_uniform<Dense>(seed, number * kModuli + j, dense_prime(j), minus_a);
    for (std::size_t f = 0; f < kFamilies; ++f) {
      Word* to = product + (f * kModuli + j) * kDenseN;
      const Word* secret = static_cast<const Word*>(secrets) + (f * kAllPrimes + j) * kDenseN;
      multiply_add<Dense>(dense_of(j).lanes, minus_a, secret, nullptr, to);
      dense_of(j).inverse(to);
    }
  }
  for (std::size_t k = 0; k < count; ++k) {
    const Leaf& leaf = leaves[k];
    u64 scale[kModuli];
    for (std::size_t j = 0; j < kModuli; ++j)  // delta / 2^depth
      scale[j] = power(2, log_delta - leaf.depth, dense_prime(j));
    for (std::size_t i = 0; i < leaf.rows; ++i) {
      const std::size_t at = leaf.residue + (i << leaf.depth);
      u64 v[kFamilies * kModuli];
      for (std::size_t f = 0; f < kFamilies; ++f)
        for (std::size_t j = 0; j < kModuli; ++j) {
          const Prime& prime = dense_prime(j);
          const u64 masked = add(Lanes::number(product[(f * kModuli + j) * kDenseN + at], prime),
                                 residue(error[f].of[at], prime), prime);
          const u64 scaled = multiply(residue(values[k][i * kFamilies + f], prime), scale[j], prime);
          v[f * kModuli + j] = add(masked, scaled, prime);
        }
      pack4(v, out[k] + i * kRowBytes);
    }
  }
}

// --- expansion ----------------------------------------------------------------------------------------------

class Expander {
 public:
  explicit Expander(const ExpandJob& job)
      : job_(job), keys_(static_cast<const Word*>(job.keys) + kPublicKeyPolynomials * kDenseN) {
    Word* room = static_cast<Word*>(job.scratch);
    const auto take = [&](std::size_t polynomials) { return std::exchange(room, room + polynomials * kDenseN); };
    for (Word*& each : at_) each = take(kLeafPolynomials);
    for (auto& digit : digit_)
      for (Word*& each : digit) each = take(1);
    for (Word*& each : spare_) each = take(1);
    switched_ = take(kLeafPolynomials);
  }

  bool run() {
    const bool fits = load(at_[0]);
    if (fits) visit(0, 0, job_.leaves, job_.leaves + job_.count, at_[0]);
    return fits;
  }

 private:
  // Coefficients of rows that are not sent stay 0: no wanted coefficient of an answer depends on them.
  bool load(Word* out) const {
    std::memset(out, 0, kLeafPolynomials * kDenseN * sizeof(Word));
    bool fits = true;
    for (std::size_t k = 0; k < job_.count; ++k)
      for (std::size_t i = 0; i < job_.leaves[k].rows; ++i) {
        const std::size_t at = job_.leaves[k].residue + (i << job_.leaves[k].depth);
        u64 v[kFamilies * kModuli];
        unpack4(job_.packed[k] + i * kRowBytes, v);
        for (std::size_t f = 0; f < kFamilies; ++f)
          for (std::size_t j = 0; j < kModuli; ++j) {
            const Prime& prime = dense_prime(j);
            fits &= v[f * kModuli + j] < prime.p;
            polynomial(out, f, j)[at] = Lanes::word(multiply(v[f * kModuli + j], special_of(j).number, prime), prime);
          }
      }
    for (std::size_t j = 0; j < kModuli; ++j) {
      for (std::size_t f = 0; f < kFamilies; ++f) dense_of(j).forward(polynomial(out, f, j), 0);
      uniform<Dense>(job_.seed, job_.number * kModuli + j, dense_prime(j), polynomial(out, kFamilies, j));
    }
    return fits;
  }

  // `own` is overwritten by its lower half.
  void visit(std::size_t depth, std::size_t offset, const Leaf* first, const Leaf* last, Word* own) {
    if (first->depth == depth) return add_to_tiles(*first, static_cast<std::size_t>(first - job_.leaves), own);
    const std::size_t middle = offset + (kDenseN >> (depth + 1));
    const Leaf* upper = first;
    while (upper != last && upper->offset < middle) ++upper;
    const bool lower_leaf = first != upper && first->depth == depth + 1;
    const bool upper_leaf = upper != last && upper->depth == depth + 1;
    switch_key(depth, own);
    if ((first != upper && !lower_leaf) || (upper != last && !upper_leaf)) divide_mask();
    if (upper != last) half<true>(depth, own, upper_leaf, at_[depth + 1]);
    if (first != upper) {
      half<false>(depth, own, lower_leaf, own);
      visit(depth + 1, offset, first, upper, own);
    }
    if (upper != last) visit(depth + 1, middle, upper, last, at_[depth + 1]);
  }

  // `switched_` = sigma(c) under the key again; all parts scaled by the special prime.
  void switch_key(std::size_t depth, const Word* own) {
    const std::uint32_t* from = step_of(depth).from;
    for (std::size_t d = 0; d < kModuli; ++d) {
      const Word* mask = polynomial(own, kFamilies, d);
      for (std::size_t i = 0; i < kDenseN; i += kL) Lanes::store(digit_[d][d] + i, Lanes::gather(mask, from + i));
      std::memcpy(spare_[0], digit_[d][d], kDenseN * sizeof(Word));
      dense_of(d).inverse(spare_[0]);
      for (std::size_t j = 0; j < kAllPrimes; ++j)
        if (j != d) lift(spare_[0], d, j, digit_[d][j]);
    }
    const Word* key = keys_ + depth * kStepPolynomials * kDenseN;
    for (std::size_t j = 0; j < kAllPrimes; ++j) {
      const Lanes lanes = dense_of(j).lanes;
      for (std::size_t i = 0; i < kDenseN; i += kL) {
        const V first = Lanes::load(digit_[0][j] + i), second = Lanes::load(digit_[1][j] + i);
        for (std::size_t part = 0; part < kParts; ++part) {
          const V carried = part < kFamilies ? Lanes::gather(polynomial(own, part, j), from + i) : V{};
          typename Lanes::Sum sum;
          lanes.accumulate(sum, first, Lanes::load(polynomial(key, part, j) + i));
          lanes.accumulate(sum, second, Lanes::load(polynomial(key, kParts + part, j) + i));
          Lanes::store(polynomial(switched_, part, j) + i,
                       lanes.settled(lanes.settle(carried, sum)));
        }
      }
    }
  }

  // The switched mask divided by the special prime, for a further step: `spare_`, modulo q.
  void divide_mask() {
    Word *rest = spare_[kModuli], *lifted = spare_[kModuli + 1];
    std::memcpy(rest, polynomial(switched_, kFamilies, kSpecial), kDenseN * sizeof(Word));
    dense_of(kSpecial).inverse(rest);
    for (std::size_t j = 0; j < kModuli; ++j) {
      lift(rest, kSpecial, j, lifted);
      const Lanes lanes = dense_of(j).lanes;
      const Lanes::Factor scale = inverse_special(j).factor();
      const Word* whole = polynomial(switched_, kFamilies, j);
      for (std::size_t i = 0; i < kDenseN; i += kL)
        Lanes::store(spare_[j] + i,
                     lanes.finish(lanes.difference_times(Lanes::load(whole + i), Lanes::load(lifted + i), scale)));
    }
  }

  // A half of a step: c + sigma(c), or (c - sigma(c)) X^(-2^depth). For a leaf, the mask is scaled too, and the upper
  // half is left as it is; the tiles' polynomials compensate.
  template <bool kUpper>
  void half(std::size_t depth, const Word* own, bool leaf, Word* out) const {
    for (std::size_t part = 0; part < kParts; ++part)
      for (std::size_t j = 0; j < kAllPrimes; ++j) {
        const bool mask = part == kFamilies;
        if (mask && !leaf && j == kSpecial) continue;
        const Lanes lanes = dense_of(j).lanes;
        const Word *x = polynomial(own, part, j), *y = mask && !leaf ? spare_[j] : polynomial(switched_, part, j);
        Word* to = polynomial(out, part, j);
        const Word(*shift)[kDenseN] = step_of(depth).shift[j];
        const Lanes::Factor scale = special_of(j == kSpecial ? 0 : j).factor();
        for (std::size_t i = 0; i < kDenseN; i += kL) {
          V a = Lanes::load(x + i);
          const V b = Lanes::load(y + i);
          if (mask && leaf) a = j == kSpecial ? lanes.minus(b, b) : lanes.finish(lanes.times(a, scale));
          if (!kUpper)
            Lanes::store(to + i, lanes.finish(Lanes::plus(a, b)));
          else if (leaf)
            Lanes::store(to + i, lanes.finish(lanes.minus(a, b)));
          else
            Lanes::store(to + i, lanes.finish(lanes.difference_times(a, b, Lanes::factors(shift[0] + i, shift[1] + i))));
        }
      }
  }

  void add_to_tiles(const Leaf& leaf, std::size_t number, const Word* own) {
    const std::size_t log = leaf.depth, in_tile = std::size_t{1} << log;
    const std::size_t shift = leaf.residue & in_tile / 2;
    for (std::size_t tile = leaf.at >> log; tile << log < leaf.at + job_.slots; ++tile) {
      std::size_t hits = 0;
      for (std::size_t f = 0; f < job_.features; ++f) {
        const std::int32_t* slot = job_.slot[number] + f * job_.stride[number];
        for (std::size_t i = 0; i < leaf.rows; ++i) {
          const std::size_t b = leaf.at + static_cast<std::size_t>(slot[i]) - (tile << log);
          if (b >= in_tile) continue;  // in an earlier tile the difference wraps around
          if (hits == hits_.size()) hits_.resize(2 * hits + 64);
          hits_[hits++] = static_cast<std::int32_t>(b) - static_cast<std::int32_t>((i << log) + shift);
        }
      }
      for (std::size_t j = 0; j < kAllPrimes; ++j) {
        const Lanes lanes = dense_of(j).lanes;
        const Word one = prepared_word(1, dense_prime(j)), minus_one = Lanes::negated(one, dense_prime(j));
        Word* x = spare_[0];
        std::memset(x, 0, kDenseN * sizeof(Word));
        for (std::size_t h = 0; h < hits; ++h) {
          const std::int32_t exponent = hits_[h];
          Word& to = x[exponent < 0 ? exponent + static_cast<std::int32_t>(kDenseN) : exponent];
          to = lanes.add_word(to, exponent < 0 ? minus_one : one);
        }
        dense_of(j).forward(x, 0);
        Word* sums = static_cast<Word*>(job_.sums) + (leaf.tile + tile - job_.first_tile) * kLeafPolynomials * kDenseN;
        for (std::size_t i = 0; i < kDenseN; i += kL) {
          const V bins = Lanes::load(x + i);
          for (std::size_t part = 0; part < kParts; ++part) {
            typename Lanes::Sum sum;
            lanes.accumulate(sum, bins, Lanes::load(polynomial(own, part, j) + i));
            Word* to = polynomial(sums, part, j) + i;
            Lanes::store(to, lanes.settled(lanes.settle(Lanes::load(to), sum)));
          }
        }
      }
    }
  }

  const ExpandJob& job_;
  const Word* keys_;
  Word *at_[kMostDepth + 1], *digit_[kModuli][kAllPrimes], *spare_[kModuli + 2], *switched_;
  std::vector<std::int32_t> hits_;
};

bool expand(const ExpandJob& job) { return Expander(job).run(); }

void add_sums(void* sums, const void* more) {
  for (std::size_t part = 0; part < kParts; ++part)
    for (std::size_t j = 0; j < kAllPrimes; ++j) {
      const Lanes lanes = dense_of(j).lanes;
      Word* to = polynomial(static_cast<Word*>(sums), part, j);
      const Word* from = polynomial(static_cast<const Word*>(more), part, j);
      for (std::size_t i = 0; i < kDenseN; i += kL)
        Lanes::store(to + i, lanes.finish(Lanes::plus(Lanes::load(to + i), Lanes::load(from + i))));
    }
}

// --- answers ------------------------------------------------------------------------------------------------

// Residues modulo the first prime as `bits` bits: the nearest to x 2^bits / p, and back.
struct Shorter {
  unsigned bits;
  u64 factor;
  explicit Shorter(unsigned bits_)
      : bits(bits_), factor(static_cast<u64>((static_cast<u128>(1) << (64 + bits_)) / dense_prime(0).p)) {}
  u64 of(u64 x) const {
    return static_cast<u64>((static_cast<u128>(x) * factor + (u64{1} << 63)) >> 64) & ((u64{1} << bits) - 1);
  }
  u64 back(u64 y) const {
    return reduce(static_cast<u64>((static_cast<u128>(y) * dense_prime(0).p + (u64{1} << (bits - 1))) >> bits), dense_prime(0));
  }
};

void finish_dense(const FinishJob& job) {
  Word* sums = static_cast<Word*>(job.sums);
  Word *hiding = static_cast<Word*>(job.scratch), *error = hiding + kDenseN;  // errors modulo both primes
  Chacha source(job.noise_key, job.noise_stream);
  DenseSmall small;
  small.errors(source);
  for (std::size_t j = 0; j < kModuli; ++j) small.words(dense_prime(j), error + j * kDenseN);
  small.ternaries(source);
  // Re-randomise: add a public-key encryption of zero, so that the mask reveals nothing about the tile.
  for (std::size_t j = 0; j < kModuli; ++j) {
    small.transformed(dense_of(j), hiding);
    for (std::size_t part = 0; part < kParts; ++part) {
      const Word* key = static_cast<const Word*>(job.keys) + (part * kModuli + j) * kDenseN;
      multiply_add<Dense>(dense_of(j).lanes, hiding, key, polynomial(sums, part, j), polynomial(sums, part, j));
    }
  }
  for (std::size_t j = 0; j < kAllPrimes; ++j) {
    for (std::size_t f = 0; f < kFamilies; ++f) dense_of(j).inverse_below(polynomial(sums, f, j), job.count);
    dense_of(j).inverse(polynomial(sums, kFamilies, j));
  }
  const Switch to_first;
  const Shorter shorter(job.bits);
  const Prime& special = dense_prime(kSpecial);
  u64 delta[kModuli], least[kModuli];
  for (std::size_t j = 0; j < kModuli; ++j) {
    delta[j] = power(2, job.log_delta, dense_prime(j));
    least[j] = subtract(0, power(2, job.log_flood, dense_prime(j)), dense_prime(j));
  }
  // Divide the wanted coefficients by the special prime; then add `added` and the flood modulo q, so that the noise
  // reveals nothing about the tile, and only the new sum appears.
  for (std::size_t f = 0; f < kFamilies; ++f)
    for (std::size_t b = 0; b < job.count; ++b) {
      const u64 high = source.next();
      const u128 bits = (static_cast<u128>(high) << 64 | source.next()) >> (127 - job.log_flood);
      const u64 rest = Lanes::number(polynomial(sums, f, kSpecial)[b], special);
      u64 x[kModuli];
      for (std::size_t j = 0; j < kModuli; ++j) {
        const Prime& prime = dense_prime(j);
        u64 lifted = reduce(rest, prime);
        if (rest > special.p / 2) lifted = subtract(lifted, special_of(j).number, prime);
        x[j] = subtract(Lanes::number(polynomial(sums, f, j)[b], prime), lifted, prime);
        x[j] = multiply(x[j], inverse_special(j).number, prime);
        x[j] = add(x[j], add(reduce_wide(bits, prime), least[j], prime), prime);  // in [-2^log_flood, 2^log_flood)
        if (job.added) {
          const u64 value = residue(job.added[f * job.count + b], prime);
          x[j] = add(x[j], multiply(value, delta[j], prime), prime);
        }
      }
      job.answers[f * job.count + b] = shorter.of(to_first.number(x[0], x[1]));
    }
  const typename Lanes::Other other = Lanes::other(special);
  const Word* rest = polynomial(sums, kFamilies, kSpecial);
  for (std::size_t j = 0; j < kModuli; ++j) {
    const Lanes lanes = dense_of(j).lanes;
    Word *x = polynomial(sums, kFamilies, j), *e = error + j * kDenseN;
    for (std::size_t i = 0; i < kDenseN; i += kL) {
      const V divided = lanes.finish(
          lanes.times(lanes.less_centred(Lanes::load(x + i), Lanes::load(rest + i), other), inverse_special(j).factor()));
      Lanes::store(x + i, lanes.finish(Lanes::plus(divided, Lanes::load(e + i))));
    }
  }
  Word *x = polynomial(sums, kFamilies, 0), *y = polynomial(sums, kFamilies, 1);
  const Lanes lanes = dense_of(0).lanes;
  const typename Lanes::Factor scale = Lanes::factor(&to_first.value[0], &to_first.value[1]);
  for (std::size_t i = 0; i < kDenseN; i += kL)
    Lanes::store(x + i, lanes.finish(lanes.times(
                            lanes.less_centred(Lanes::load(x + i), Lanes::load(y + i), to_first.other), scale)));
  BitWriter mask(job.mask);
  for (std::size_t i = 0; i < kDenseN; ++i) mask.put(shorter.of(Lanes::number(x[i], dense_prime(0))), job.bits);
  mask.end();
}

void decrypt_dense(const void* secrets, const std::uint8_t* mask, const u64* answers, std::size_t count, unsigned bits,
                   unsigned log_delta, std::int64_t* out, void* scratch) {
  const Prime& p0 = dense_prime(0);
  const Dense& transform = dense_of(0);
  const Shorter shorter(bits);
  Word *a = static_cast<Word*>(scratch), *product = a + kDenseN;
  BitReader reader(mask, kDenseN * bits / 8);
  for (std::size_t i = 0; i < kDenseN; ++i) a[i] = Lanes::word(shorter.back(reader.next(bits)), p0);
  transform.forward(a, 0);
  for (std::size_t f = 0; f < kFamilies; ++f) {
    multiply_add<Dense>(transform.lanes, a, static_cast<const Word*>(secrets) + f * kAllPrimes * kDenseN, nullptr, product);
    transform.inverse(product);
    for (std::size_t b = 0; b < count; ++b) {
      const u64 x = add(shorter.back(answers[f * count + b]), Lanes::number(product[b], p0), p0);
      const __int128 centred = x > p0.p / 2 ? static_cast<__int128>(x) - p0.p : x;
      out[b * kFamilies + f] = static_cast<std::int64_t>(
          (centred * static_cast<__int128>(dense_prime(1).p) + (static_cast<__int128>(1) << (log_delta - 1))) >> log_delta);
    }
  }
}

}  // namespace

#define LATTICE_EXPANSION_ENGINE(supported)                                                                    \
  {Lanes::kName, supported, prepare_dense_secret, key_part,     prepare_keys,                                   \
   encrypt_dense, expand,   add_sums,             finish_dense, decrypt_dense}
