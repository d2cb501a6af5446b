// An engine of secure inference over `Lanes`, local to the including file as in engine_body.h, which comes before it.
#pragma once

#include "service_engine.h"

namespace {

using Service = TransformOf<ServiceRing>;
constexpr std::size_t kServiceN = ServiceRing::kN, kServicePrimes = ServiceRing::kPrimes;

const Service& service_of(std::size_t prime) {
  static const Service made[kServicePrimes] = {Service(0), Service(1), Service(2), Service(3), Service(4)};
  return made[prime];
}

// --- bytes --------------------------------------------------------------------------------------------------

constexpr std::size_t kEightBytes = ServiceRing::kResidueBits;  // eight residues of 43 bits are 43 bytes

void pack8(const u64* v, std::uint8_t* out) {
  u64 words[6] = {};
#pragma GCC unroll 8
  for (std::size_t k = 0; k < 8; ++k) {
    const std::size_t bit = ServiceRing::kResidueBits * k, shift = bit % 64;
    words[bit / 64] |= v[k] << shift;
    if (shift > 64 - ServiceRing::kResidueBits) words[bit / 64 + 1] |= v[k] >> (64 - shift);
  }
  std::memcpy(out, words, kEightBytes);
}

void unpack8(const std::uint8_t* in, u64* v) {
#pragma GCC unroll 8
  for (std::size_t k = 0; k < 8; ++k) {
    const std::size_t bit = ServiceRing::kResidueBits * k, last = kEightBytes - 8;
    const std::size_t byte = bit / 8 < last ? bit / 8 : last;  // eight bytes within the 43
    u64 word;
    std::memcpy(&word, in + byte, 8);
    v[k] = word >> (bit - 8 * byte) & ServiceRing::kPrime[0].mask();
  }
}

void pack_service(const Word* a, const Prime& prime, std::uint8_t* out) {
  for (std::size_t i = 0; i < kServiceN; i += 8, out += kEightBytes) {
    u64 v[8];
    for (std::size_t k = 0; k < 8; ++k) v[k] = Lanes::number(a[Service::place(i + k)], prime);
    pack8(v, out);
  }
}

bool unpack_service(const std::uint8_t* in, const Prime& prime, Word* out) {
  bool fits = true;
  for (std::size_t i = 0; i < kServiceN; i += 8, in += kEightBytes) {
    u64 v[8];
    unpack8(in, v);
    for (std::size_t k = 0; k < 8; ++k) {
      fits &= v[k] < prime.p;
      out[Service::place(i + k)] = Lanes::word(v[k], prime);
    }
  }
  return fits;
}

bool service_fits(const std::uint8_t* packed) {
  bool fits = true;
  for (std::size_t j = 0; j < kServicePrimes; ++j)
    for (std::size_t i = 0; i < kServiceN; i += 8, packed += kEightBytes) {
      u64 v[8];
      unpack8(packed, v);
      for (std::size_t k = 0; k < 8; ++k) fits &= v[k] < ServiceRing::kPrime[j].p;
    }
  return fits;
}

// --- small and uniform polynomials --------------------------------------------------------------------------

using Small = SmallOf<kServiceN>;

void uniform_service(const std::uint8_t* seed, std::size_t j, Word* out) {
  const Prime& prime = ServiceRing::kPrime[j];
  Chacha source(seed, j);
  for (std::size_t i = 0; i < kServiceN;) {
    const u64 x = source.next() & prime.mask();
    if (x < prime.p) out[Service::place(i++)] = Lanes::word(x, prime);
  }
}

void prepare_service(Word* a, const Prime& prime) {
  for (std::size_t i = 0; i < kServiceN; ++i) a[i] = prepared_word(Lanes::number(a[i], prime), prime);
}

// out = a * prepared + carried, below p.
void service_product(const Lanes lanes, const Word* a, const Word* prepared, const Word* carried, Word* out) {
  for (std::size_t i = 0; i < kServiceN; i += kL) {
    typename Lanes::Sum sum;
    lanes.accumulate(sum, Lanes::load(a + i), Lanes::load(prepared + i));
    Lanes::store(out + i, lanes.settled(lanes.settle(Lanes::load(carried + i), sum)));
  }
}

// --- keys ---------------------------------------------------------------------------------------------------

void prepare_service_secret(const std::int8_t* s, void* out) {
  Word* own = static_cast<Word*>(out);
  Word* square = own + kServicePrimes * kServiceN;
  Small small;
  std::memcpy(small.of, s, kServiceN);
  for (std::size_t j = 0; j < kServicePrimes; ++j, own += kServiceN, square += kServiceN) {
    const Prime& prime = ServiceRing::kPrime[j];
    small.transformed(service_of(j), own);
    for (std::size_t i = 0; i < kServiceN; ++i) {
      const u64 value = Lanes::number(own[i], prime);
      own[i] = prepared_word(value, prime), square[i] = prepared_word(multiply(value, value, prime), prime);
    }
  }
  std::memset(small.of, 0, sizeof small.of);
  asm volatile("" : : "r"(small.of) : "memory");
}

void service_public_part(const void* secret, const std::uint8_t* seed, const std::uint8_t* noise_key,
                         std::uint8_t* out, void* scratch) {
  Word *minus_a = static_cast<Word*>(scratch), *b = minus_a + kServiceN;
  Chacha source(noise_key, 0);
  Small error;
  error.errors(source);
  for (std::size_t j = 0; j < kServicePrimes; ++j) {
    const Prime& prime = ServiceRing::kPrime[j];
    uniform_service(seed, j, minus_a);
    for (std::size_t i = 0; i < kServiceN; ++i) minus_a[i] = Lanes::negated(minus_a[i], prime);
    error.transformed(service_of(j), b);
    service_product(service_of(j).lanes, minus_a, static_cast<const Word*>(secret) + j * kServiceN, b, b);
    pack_service(b, prime, out + j * ServiceRing::kPrimeBytes);
  }
}

bool prepare_service_key(const std::uint8_t* seed, const std::uint8_t* packed, void* out) {
  Word *b = static_cast<Word*>(out), *a = b + kServicePrimes * kServiceN;
  bool fits = true;
  for (std::size_t j = 0; j < kServicePrimes; ++j, a += kServiceN, b += kServiceN) {
    fits &= unpack_service(packed + j * ServiceRing::kPrimeBytes, ServiceRing::kPrime[j], b);
    uniform_service(seed, j, a);
    prepare_service(a, ServiceRing::kPrime[j]), prepare_service(b, ServiceRing::kPrime[j]);
  }
  return fits;
}

// --- encrypting, blinding, decrypting -----------------------------------------------------------------------

void service_encrypt(const void* key, const std::int64_t* values, const std::int32_t* place, std::size_t terms,
                     const u64* scale, const std::uint8_t* noise_key, u64 noise_stream, std::uint8_t* out,
                     void* scratch) {
  Word *mask = static_cast<Word*>(scratch), *part = mask + kServiceN;
  Chacha source(noise_key, noise_stream);
  Small r, first, second;
  first.errors(source), second.errors(source), r.ternaries(source);
  for (std::size_t j = 0; j < kServicePrimes; ++j) {
    const Prime& prime = ServiceRing::kPrime[j];
    const Service& transform = service_of(j);
    const Word *b = static_cast<const Word*>(key) + j * kServiceN, *a = b + kServicePrimes * kServiceN;
    r.transformed(service_of(j), mask);
    first.words(prime, part);
    for (std::size_t k = 0; k < terms; ++k) {
      Word& at = part[place[k]];
      at = transform.lanes.add_word(at, Lanes::word(multiply(residue(values[k], prime), scale[j], prime), prime));
    }
    transform.forward(part, 0);
    service_product(transform.lanes, mask, b, part, part);
    pack_service(part, prime, out + j * ServiceRing::kPrimeBytes);
    second.transformed(service_of(j), part);
    service_product(transform.lanes, mask, a, part, part);
    pack_service(part, prime, out + ServiceRing::kPolyBytes + j * ServiceRing::kPrimeBytes);
  }
}

// The mean of values whose lanes were summed in `sum`.
u64 mean_of(V sum, const Service& transform) {
  alignas(64) Word words[kL];
  Lanes::store(words, transform.lanes.settled(sum));
  u64 total = 0;
  for (std::size_t k = 0; k < kL; ++k) total = add(total, Lanes::number(words[k], transform.prime), transform.prime);
  return multiply(total, ServiceRing::roots(transform.which).inverse_n, transform.prime);
}

// sign * (n1 (limit - shift * row) + n2), plus an encryption of zero of degree two: (z0', z1' + z0, z1) where
// (z0, z1) = (b r, a r + e) and (z0', z1') = (b r', a r' + e'). Only the constant of the first part is used, and n2
// hides its error. A holder of s cannot distinguish the other two from uniform: given r, the middle one is an RLWE
// sample with the secret r'; and then the last is one with the secret r.
void service_blind(const BlindJob& job) {
  Word* room = static_cast<Word*>(job.scratch);
  Word* at[10];
  for (std::size_t k = 0; k < 10; ++k) at[k] = room + k * kServiceN;
  Word *shift0 = at[0], *shift1 = at[1], *limit0 = at[2], *limit1 = at[3], *row0 = at[4], *row1 = at[5];
  Word *r = at[6], *r_ = at[7], *middle = at[8], *last = at[9];
  Chacha source(job.noise_key, job.noise_stream);
  Small small[4];
  small[0].errors(source), small[1].errors(source), small[2].ternaries(source), small[3].ternaries(source);
  std::uint8_t *out1 = job.out + kConstantBytes, *out2 = out1 + ServiceRing::kPolyBytes;
  for (std::size_t j = 0; j < kServicePrimes; ++j) {
    const Prime& prime = ServiceRing::kPrime[j];
    const Service& transform = service_of(j);
    const Lanes lanes = transform.lanes;
    const std::size_t here = j * ServiceRing::kPrimeBytes;
    for (std::size_t k = 0; k < 4; ++k) unpack_service(job.node + k * ServiceRing::kPolyBytes + here, prime, at[k]);
    for (std::size_t k = 0; k < 2; ++k) unpack_service(job.row + k * ServiceRing::kPolyBytes + here, prime, at[4 + k]);
    small[0].transformed(service_of(j), middle), small[1].transformed(service_of(j), last);
    small[2].transformed(service_of(j), r), small[3].transformed(service_of(j), r_);
    const Word *b = static_cast<const Word*>(job.key) + j * kServiceN, *a = b + kServicePrimes * kServiceN;
    // A row times the prepared factor is itself prepared, so nodes need not be.
    const u64 n1 = Lanes::prepared(job.factor[j], prime), minus = n1 ? prime.p - n1 : 0;
    const Word n1_word[2] = {Lanes::word(n1, prime), Lanes::quotient(n1, prime)};
    const Word minus_word[2] = {Lanes::word(minus, prime), Lanes::quotient(minus, prime)};
    const V times_n1 = Lanes::factor(&n1_word[0], &n1_word[1]).value;
    const typename Lanes::Factor by_minus = Lanes::factor(&minus_word[0], &minus_word[1]);
    alignas(64) static const Word kNothing[kL] = {};
    V constant = Lanes::load(kNothing);
    for (std::size_t i = 0; i < kServiceN; i += kL) {
      const V x0 = lanes.times(Lanes::load(row0 + i), by_minus), x1 = lanes.times(Lanes::load(row1 + i), by_minus);
      const V s0 = Lanes::load(shift0 + i), s1 = Lanes::load(shift1 + i);
      const V u = Lanes::load(r + i), u_ = Lanes::load(r_ + i), by_b = Lanes::load(b + i), by_a = Lanes::load(a + i);
      typename Lanes::Sum sum0, sum1, sum2;
      lanes.accumulate(sum0, s0, x0);
      lanes.accumulate(sum0, Lanes::load(limit0 + i), times_n1);
      lanes.accumulate(sum0, u_, by_b);
      constant = lanes.settle(constant, sum0);
      lanes.accumulate(sum1, s0, x1);
      lanes.accumulate(sum1, s1, x0);
      lanes.accumulate(sum1, Lanes::load(limit1 + i), times_n1);
      lanes.accumulate(sum1, u_, by_a);
      lanes.accumulate(sum1, u, by_b);
      Lanes::store(middle + i, lanes.settled(lanes.settle(Lanes::load(middle + i), sum1)));
      lanes.accumulate(sum2, s1, x1);
      lanes.accumulate(sum2, u, by_a);
      Lanes::store(last + i, lanes.settled(lanes.settle(Lanes::load(last + i), sum2)));
    }
    const u64 residue = add(mean_of(constant, transform), job.offset[j], prime);
    std::memcpy(job.out + 8 * j, &residue, 8);
    pack_service(middle, prime, out1 + here);
    pack_service(last, prime, out2 + here);
  }
}

bool service_decrypt(const void* secret, const std::uint8_t* blinded, u64* out, void* scratch) {
  Word *middle = static_cast<Word*>(scratch), *last = middle + kServiceN;
  bool fits = true;
  for (std::size_t j = 0; j < kServicePrimes; ++j) {
    const Service& transform = service_of(j);
    const Lanes lanes = transform.lanes;
    const std::uint8_t* part = blinded + kConstantBytes + j * ServiceRing::kPrimeBytes;
    fits &= unpack_service(part, transform.prime, middle);
    fits &= unpack_service(part + ServiceRing::kPolyBytes, transform.prime, last);
    const Word *s = static_cast<const Word*>(secret) + j * kServiceN, *square = s + kServicePrimes * kServiceN;
    alignas(64) static const Word kNothing[kL] = {};
    V constant = Lanes::load(kNothing);
    for (std::size_t i = 0; i < kServiceN; i += kL) {
      typename Lanes::Sum sum;
      lanes.accumulate(sum, Lanes::load(middle + i), Lanes::load(s + i));
      lanes.accumulate(sum, Lanes::load(last + i), Lanes::load(square + i));
      constant = lanes.settle(constant, sum);
    }
    u64 first;
    std::memcpy(&first, blinded + 8 * j, 8);
    fits &= first < transform.prime.p;
    out[j] = add(mean_of(constant, transform), reduce(first, transform.prime), transform.prime);
  }
  return fits;
}

}  // namespace

#define LATTICE_SERVICE_ENGINE(supported)                                                                    \
  {Lanes::kName,    supported,     prepare_service_secret, service_public_part, prepare_service_key,         \
   service_encrypt, service_blind, service_decrypt,        service_fits}
