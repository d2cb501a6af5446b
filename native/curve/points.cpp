// Arithmetic modulo p = 2^255 - 19 and on Curve25519, four points at a time. Compiled with AVX2.
//
// A number has ten limbs, at bits 0, 26, 51, 77, ...: 26 and 25 bits in turn. Products of limbs are those of 32-bit
// numbers. A limb is `tight` below 2^26 + 2^17 (even) or half of that (odd); a sum or difference of two tight numbers
// may be multiplied: 10 products of 2 * 2^27.6 and 19 * 2^27.6 stay below 2^64. No branch and no address depends on
// a value.
#include "points.h"

#include <immintrin.h>

#include <cstring>

namespace {

using std::uint64_t;
using std::uint8_t;

using Lanes = uint64_t __attribute__((vector_size(32)));
constexpr int kLanes = 4;

inline Lanes all(uint64_t value) { return Lanes{value, value, value, value}; }
inline Lanes times(Lanes a, Lanes b) {  // of the lower 32 bits
  return reinterpret_cast<Lanes>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
inline Lanes is_zero(Lanes a) { return reinterpret_cast<Lanes>(a == all(0)); }

constexpr int kLimbs = 10;
constexpr int kPlace[kLimbs] = {0, 26, 51, 77, 102, 128, 153, 179, 204, 230};
constexpr int kGroups = curve::kPointsAtOnce / kLanes;

constexpr int bits_of(int limb) { return limb % 2 ? 25 : 26; }

struct Number {
  Lanes limb[kLimbs];
};

inline void carry_from(Number& a, int limb) {
  const Lanes over = a.limb[limb] >> bits_of(limb);
  a.limb[limb] &= all((uint64_t{1} << bits_of(limb)) - 1);
  if (limb < kLimbs - 1)
    a.limb[limb + 1] += over;
  else
    a.limb[0] += (over << 4) + (over << 1) + over;  // 2^255 = 19
}

// Makes a number tight.
inline void carry(Number& a) {
  constexpr int kOrder[] = {0, 4, 1, 5, 2, 6, 3, 7, 4, 8, 9, 0};
#pragma GCC unroll 12
  for (int at = 0; at < 12; ++at) carry_from(a, kOrder[at]);
}

// The representative below p of a tight number.
inline void freeze(Number& a) {
  for (int limb = 0; limb < kLimbs; ++limb) carry_from(a, limb);
  for (int limb = 0; limb < kLimbs; ++limb) carry_from(a, limb);
  Lanes over = (a.limb[0] + all(19)) >> 26;  // 1 if the number is p or more
  for (int limb = 1; limb < kLimbs; ++limb) over = (a.limb[limb] + over) >> bits_of(limb);
  a.limb[0] += (over << 4) + (over << 1) + over;
  for (int limb = 0; limb < kLimbs - 1; ++limb) carry_from(a, limb);
  a.limb[kLimbs - 1] &= all((uint64_t{1} << 25) - 1);
}

inline Number number(uint64_t value) {
  Number a{};
  a.limb[0] = all(value);
  return a;
}

inline Number sum(const Number& a, const Number& b) {
  Number out;
  for (int limb = 0; limb < kLimbs; ++limb) out.limb[limb] = a.limb[limb] + b.limb[limb];
  return out;
}

// a - b + 2p; b is tight.
inline Number difference(const Number& a, const Number& b) {
  Number out;
  for (int limb = 0; limb < kLimbs; ++limb) {
    const uint64_t twice_p = 2 * ((uint64_t{1} << bits_of(limb)) - (limb ? 1 : 19));
    out.limb[limb] = a.limb[limb] + all(twice_p) - b.limb[limb];
  }
  return out;
}

inline Number tight(Number a) {
  carry(a);
  return a;
}

// Not inlined: a ladder of inlined products does not fit the processor's cache of decoded instructions.
__attribute__((noinline)) Number product(const Number& a, const Number& b) {
  Lanes wrapped[kLimbs];
  for (int limb = 1; limb < kLimbs; ++limb) wrapped[limb] = times(b.limb[limb], all(19));
  Number out{};
#pragma GCC unroll 10
  for (int i = 0; i < kLimbs; ++i) {
    const Lanes left = a.limb[i], twice = left + left;
#pragma GCC unroll 10
    for (int j = 0; j < kLimbs; ++j)
      out.limb[(i + j) % kLimbs] += times(i % 2 && j % 2 ? twice : left, i + j < kLimbs ? b.limb[j] : wrapped[j]);
  }
  carry(out);
  return out;
}

__attribute__((noinline)) Number square(const Number& a) {
  Lanes wrapped[kLimbs];
  for (int limb = 1; limb < kLimbs; ++limb) wrapped[limb] = times(a.limb[limb], all(19));
  Number out{};
#pragma GCC unroll 10
  for (int i = 0; i < kLimbs; ++i) {
    const Lanes once = a.limb[i], twice = once + once, four_times = twice + twice;
#pragma GCC unroll 10
    for (int j = i; j < kLimbs; ++j) {  // each pair once
      const bool odd = i % 2 && j % 2;
      const Lanes left = i == j ? (odd ? twice : once) : (odd ? four_times : twice);
      out.limb[(i + j) % kLimbs] += times(left, i + j < kLimbs ? a.limb[j] : wrapped[j]);
    }
  }
  carry(out);
  return out;
}

inline Number times_small(const Number& a, uint64_t factor) {
  Number out;
  for (int limb = 0; limb < kLimbs; ++limb) out.limb[limb] = times(a.limb[limb], all(factor));
  carry(out);
  return out;
}

inline Number squared(Number a, int count) {
  for (int at = 0; at < count; ++at) a = square(a);
  return a;
}

// Each lane of `b` where the mask is set, else of `a`.
inline Number choose(const Number& a, const Number& b, Lanes mask) {
  Number out;
  for (int limb = 0; limb < kLimbs; ++limb) out.limb[limb] = a.limb[limb] ^ (mask & (a.limb[limb] ^ b.limb[limb]));
  return out;
}

inline void swap(Number& a, Number& b, Lanes mask) {
  for (int limb = 0; limb < kLimbs; ++limb) {
    const Lanes changed = mask & (a.limb[limb] ^ b.limb[limb]);
    a.limb[limb] ^= changed;
    b.limb[limb] ^= changed;
  }
}

inline Lanes vanishes(Number a) {
  freeze(a);
  Lanes any = all(0);
  for (int limb = 0; limb < kLimbs; ++limb) any |= a.limb[limb];
  return is_zero(any);
}

inline Lanes equal(const Number& a, const Number& b) { return vanishes(tight(difference(a, b))); }

// a^(2^250 - 1), and a^11: the common part of the two powers below.
inline Number most_of_power(const Number& a, Number& eleventh) {
  const Number second = square(a), ninth = product(squared(second, 2), a);
  eleventh = product(ninth, second);
  const Number five = product(square(eleventh), ninth);  // 2^5 - 1
  const Number ten = product(squared(five, 5), five);
  const Number twenty = product(squared(ten, 10), ten);
  const Number forty = product(squared(twenty, 20), twenty);
  const Number fifty = product(squared(forty, 10), ten);
  const Number hundred = product(squared(fifty, 50), fifty);
  const Number two_hundred = product(squared(hundred, 100), hundred);
  return product(squared(two_hundred, 50), fifty);
}

// 1 / a = a^(p-2), and 0 for 0.
Number inverse(const Number& a) {
  Number eleventh;
  return product(squared(most_of_power(a, eleventh), 5), eleventh);
}

// a^((p+3)/8): a square root of a or -a, if a is a square.
Number root(const Number& a) {
  Number eleventh;
  return product(product(squared(most_of_power(a, eleventh), 2), a), a);
}

// The inverses of many numbers at the price of one and three products each. One 0 makes all of its lane 0.
void invert(Number* a, int count) {
  Number before[kGroups];
  Number running = number(1);
  for (int at = 0; at < count; ++at) {
    before[at] = running;
    running = product(running, a[at]);
  }
  running = inverse(running);
  for (int at = count; at-- > 0;) {
    const Number own = product(running, before[at]);
    running = product(running, a[at]);
    a[at] = own;
  }
}

// --- bytes ------------------------------------------------------------------------------------------------------------

void read_lane(Number& a, int at, const uint8_t* bytes) {
  uint64_t words[5] = {};
  std::memcpy(words, bytes, curve::kBytes);  // little-endian machines only, as everywhere here
  words[3] &= ~(uint64_t{1} << 63);
  for (int limb = 0; limb < kLimbs; ++limb) {
    const int word = kPlace[limb] / 64, shift = kPlace[limb] % 64;
    uint64_t value = words[word] >> shift;
    if (shift) value |= words[word + 1] << (64 - shift);
    a.limb[limb][at] = value & ((uint64_t{1} << bits_of(limb)) - 1);
  }
}

// Of a frozen number.
void write_lane(const Number& a, int at, uint8_t* bytes) {
  uint64_t words[5] = {};
  for (int limb = 0; limb < kLimbs; ++limb) {
    const int word = kPlace[limb] / 64, shift = kPlace[limb] % 64;
    words[word] |= a.limb[limb][at] << shift;
    if (shift) words[word + 1] |= a.limb[limb][at] >> (64 - shift);
  }
  std::memcpy(bytes, words, curve::kBytes);
}

// The numbers of up to kLanes items of `stride` bytes; lanes without an item repeat the first.
Number read(const uint8_t* bytes, std::size_t count, std::size_t stride) {
  Number a;
  for (int at = 0; at < kLanes; ++at) read_lane(a, at, bytes + (static_cast<std::size_t>(at) < count ? at * stride : 0));
  return a;
}

void write(Number a, std::size_t count, uint8_t* bytes) {
  freeze(a);
  for (int at = 0; at < kLanes && static_cast<std::size_t>(at) < count; ++at)
    write_lane(a, at, bytes + at * curve::kBytes);
}

Number constant(const char* hex) {  // 64 digits, the most significant first
  uint8_t bytes[curve::kBytes];
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  for (std::size_t at = 0; at < curve::kBytes; ++at)
    bytes[curve::kBytes - 1 - at] = static_cast<uint8_t>(16 * digit(hex[2 * at]) + digit(hex[2 * at + 1]));
  return read(bytes, 1, 0);
}

// --- the curve v^2 = u^3 + A u^2 + u ----------------------------------------------------------------------------------

constexpr uint64_t kA = 486662, kLadder = 121665;  // (A - 2) / 4

// The Montgomery ladder: u of scalar times the points with these u, as a fraction.
void ladder(const uint8_t* scalar, const Number& u, Number& numerator, Number& denominator) {
  Number x2 = number(1), z2 = number(0), x3 = u, z3 = number(1);
  uint64_t swapped = 0;
  for (int bit = 254; bit >= 0; --bit) {
    const uint64_t now = (scalar[bit / 8] >> (bit % 8)) & 1;
    const Lanes mask = all(0 - (swapped ^ now));
    swapped = now;
    swap(x2, x3, mask);
    swap(z2, z3, mask);
    const Number a = sum(x2, z2), b = difference(x2, z2), c = sum(x3, z3), d = difference(x3, z3);
    const Number aa = square(a), bb = square(b), da = product(d, a), cb = product(c, b);
    const Number e = difference(aa, bb);
    x3 = square(sum(da, cb));
    z3 = product(u, square(difference(da, cb)));
    x2 = product(aa, bb);
    z2 = product(e, sum(aa, times_small(e, kLadder)));
  }
  swap(x2, x3, all(0 - swapped));
  swap(z2, z3, all(0 - swapped));
  numerator = x2;
  denominator = z2;
}

}  // namespace

bool curve::multiply(const uint8_t* scalar, const uint8_t* points, std::size_t count, uint8_t* out) {
  uint8_t clamped[curve::kBytes];
  std::memcpy(clamped, scalar, sizeof clamped);
  clamped[0] &= 248;
  clamped[31] = static_cast<uint8_t>((clamped[31] & 127) | 64);
  Number above[kGroups], below[kGroups];
  const int groups = static_cast<int>((count + kLanes - 1) / kLanes);
  for (int group = 0; group < groups; ++group) {
    const std::size_t first = static_cast<std::size_t>(group) * kLanes;
    ladder(clamped, read(points + first * curve::kBytes, count - first, curve::kBytes), above[group], below[group]);
  }
  std::memset(clamped, 0, sizeof clamped);
  asm volatile("" : : "r"(clamped) : "memory");
  invert(below, groups);
  Lanes zero = all(0);
  for (int group = 0; group < groups; ++group) {
    const std::size_t first = static_cast<std::size_t>(group) * kLanes;
    const Number u = product(above[group], below[group]);
    zero |= vanishes(u);
    write(u, count - first, out + first * curve::kBytes);
  }
  for (int at = 0; at < kLanes; ++at)
    if (zero[at]) return false;
  return true;
}

namespace {

// A point of the Edwards form -x^2 + y^2 = 1 + d x^2 y^2 with a denominator.
struct Point {
  Number x, y, z;
};

struct Constants {
  Number i = constant("2b8324804fc1df0b2b4d00993dfbd7a72f431806ad2fe478c4ee1b274a0ea0b0");        // sqrt(-1)
  Number twice_d = constant("2406d9dc56dffce7198e80f2eef3d13000e0149a8283b156ebd69b9426b2f159");  // 2d
  Number to_edwards = constant("0f26edf460a006bbd27b08dc03fc4f7ec5a1d3d14b7d1a82cc6e04aaff457e06");  // sqrt(-(A+2))
};

// Elligator 2: numbers r to points (u, v) of the Montgomery form, v up to its sign.
void elligator(const Constants& known, const Number* r, int groups, Number* u, Number* v) {
  Number below[kGroups];
  for (int group = 0; group < groups; ++group) {
    const Number squared_r = square(r[group]);
    below[group] = tight(sum(sum(squared_r, squared_r), number(1)));
  }
  Number inverses[kGroups];
  std::memcpy(inverses, below, sizeof(Number) * static_cast<std::size_t>(groups));
  invert(inverses, groups);
  const Number one = number(1), one_plus_i = sum(one, known.i), one_minus_i = tight(difference(one, known.i));
  for (int group = 0; group < groups; ++group) {
    const Number first = tight(difference(number(0), times_small(inverses[group], kA)));  // -A / (1 + 2 r^2)
    const Number second = tight(difference(difference(number(0), first), number(kA)));
    const Number g = product(first, tight(sum(product(first, tight(sum(first, number(kA)))), one)));
    const Number candidate = root(g), own = square(candidate);
    // candidate^2 = e g with e = 1, -1, i or -i. For e = 1, -1 the first u is right, else the second, whose
    // u^3 + A u^2 + u is 2 r^2 g: its root is r candidate sqrt(2 / e).
    const Number opposite = tight(difference(number(0), g)), turned = product(g, known.i);
    const Lanes plus = equal(own, g), minus = equal(own, opposite), plus_i = equal(own, turned);
    const Number of_first = choose(candidate, product(candidate, known.i), minus);
    const Number of_second = product(product(r[group], candidate), choose(one_plus_i, one_minus_i, plus_i));
    const Lanes take_first = plus | minus;
    u[group] = choose(second, first, take_first);
    v[group] = choose(of_second, of_first, take_first);
  }
}

Point doubled(const Point& a) {
  const Number xx = square(a.x), yy = square(a.y), zz = square(a.z);
  const Number h = tight(sum(xx, yy)), e = tight(difference(h, square(sum(a.x, a.y))));
  const Number g = tight(difference(xx, yy)), f = tight(sum(tight(sum(zz, zz)), g));
  return {product(e, f), product(g, h), product(f, g)};
}

// Points (x1, y1) and (x2, y2) of the Edwards form.
Point added(const Constants& known, const Number& x1, const Number& y1, const Number& x2, const Number& y2) {
  const Number a = product(difference(y1, x1), difference(y2, x2)), b = product(sum(y1, x1), sum(y2, x2));
  const Number c = product(product(product(x1, y1), known.twice_d), product(x2, y2)), two = number(2);
  const Number e = tight(difference(b, a)), f = tight(difference(two, c)), g = tight(sum(two, c)), h = tight(sum(b, a));
  return {product(e, f), product(g, h), product(f, g)};
}

}  // namespace

void curve::map(const uint8_t* uniform, std::size_t count, uint8_t* out) {
  const Constants known;
  const int groups = static_cast<int>((count + kLanes - 1) / kLanes);
  Number x[2][kGroups], y[2][kGroups];
  for (int half = 0; half < 2; ++half) {
    Number r[kGroups]{}, u[kGroups], v[kGroups], below[kGroups];
    for (int group = 0; group < groups; ++group) {
      const std::size_t first = static_cast<std::size_t>(group) * kLanes;
      r[group] = read(uniform + first * 64 + half * curve::kBytes, count - first, 64);
    }
    elligator(known, r, groups, u, v);
    // x = sqrt(-(A+2)) u / v and y = (u - 1) / (u + 1), with one inversion.
    for (int group = 0; group < groups; ++group) below[group] = product(v[group], sum(u[group], number(1)));
    invert(below, groups);
    for (int group = 0; group < groups; ++group) {
      const Number more = tight(sum(u[group], number(1)));
      Number own = product(product(product(known.to_edwards, u[group]), more), below[group]);
      Number frozen = own;
      freeze(frozen);
      // The sign is the bit of the input that is not in r.
      Lanes wanted = all(0);
      const std::size_t first = static_cast<std::size_t>(group) * kLanes;
      for (int at = 0; at < kLanes && first + static_cast<std::size_t>(at) < count; ++at)
        wanted[at] = uniform[(first + static_cast<std::size_t>(at)) * 64 + half * 32 + 31] >> 7;
      const Lanes other = all(0) - ((frozen.limb[0] & all(1)) ^ wanted);
      x[half][group] = choose(own, tight(difference(number(0), own)), other);
      y[half][group] = product(product(difference(u[group], number(1)), v[group]), below[group]);
    }
  }
  Number above[kGroups], below[kGroups];
  for (int group = 0; group < groups; ++group) {
    const Point total = added(known, x[0][group], y[0][group], x[1][group], y[1][group]);
    const Point point = doubled(doubled(doubled(total)));  // in the subgroup of prime order
    above[group] = tight(sum(point.z, point.y));
    below[group] = tight(difference(point.z, point.y));
  }
  invert(below, groups);
  for (int group = 0; group < groups; ++group) {
    const std::size_t first = static_cast<std::size_t>(group) * kLanes;
    write(product(above[group], below[group]), count - first, out + first * curve::kBytes);
  }
}
