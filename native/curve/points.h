// Many points of Curve25519 at a time. Call only on processors with AVX2.
#pragma once

#include <cstddef>
#include <cstdint>

namespace curve {

constexpr std::size_t kBytes = 32;          // of a coordinate and of a scalar
constexpr std::size_t kPointsAtOnce = 128;  // that share an inversion; no call has more

// X25519 (RFC 7748) of each point. False if a result is zero: a point has low order.
bool multiply(const std::uint8_t* scalar, const std::uint8_t* points, std::size_t count, std::uint8_t* out);

// uniform: count x 64 bytes. Each half is mapped to a point; out: the Montgomery coordinate of 8 times their sum.
void map(const std::uint8_t* uniform, std::size_t count, std::uint8_t* out);

}  // namespace curve
