// Shared by the Python wrappers of the lattice engines: memory for polynomials, seeds, and work on several threads.
#pragma once

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#ifdef __linux__
#include <sys/mman.h>
#endif
#include <stdexcept>

#include "../kernels.h"
#include "engine.h"

namespace {

// Polynomials of `kPolyWords`, aligned for the widest registers and wiped on destruction: they may hold secrets.
class Words {
 public:
  explicit Words(std::size_t polynomials) : bytes_(polynomials * lattice::kPolyWords * 8) {
    constexpr std::size_t kHugePage = std::size_t{1} << 21;
    const std::size_t unit = bytes_ < kHugePage ? 64 : kHugePage;
    const std::size_t room = bytes_ ? (bytes_ + unit - 1) / unit * unit : unit;
    at_ = static_cast<char*>(std::aligned_alloc(unit, room));
    if (!at_) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    if (unit == kHugePage) madvise(at_, room, MADV_HUGEPAGE);  // fewer page faults
#endif
  }
  ~Words() {
    std::memset(at_, 0, bytes_);
    asm volatile("" : : "r"(at_) : "memory");
    std::free(at_);
  }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;
  void* at(std::size_t polynomial = 0) const { return at_ + polynomial * lattice::kPolyWords * 8; }

 private:
  std::size_t bytes_;
  char* at_;
};

inline const std::uint8_t* seed_of(const nb::bytes& seed) {
  if (seed.size() != lattice::kSeedBytes) throw std::invalid_argument("a seed has 32 bytes");
  return static_cast<const std::uint8_t*>(seed.data());
}

// body(task, room) for task = 0 .. tasks-1 on `threads` threads, with memory for `polynomials` polynomials per thread.
template <class Body>
void spread(std::size_t tasks, std::size_t threads, std::size_t polynomials, Body body) {
  std::atomic<std::size_t> next{0};
  in_parallel(tasks < threads ? tasks : threads, [&](std::size_t) {
    const Words room(polynomials);
    for (std::size_t task; (task = next++) < tasks;) body(task, room.at());
  });
}

}  // namespace
