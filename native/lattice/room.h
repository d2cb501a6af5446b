// Shared by the Python wrappers of the lattice engines: memory for polynomials, seeds, and work on several threads.
#pragma once

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#ifdef __linux__
#include <sys/mman.h>
#endif
#include <stdexcept>
#include <utility>
#include <vector>

#include "../kernels.h"
#include "engine.h"

namespace {

// Memory that is used again: fresh pages cost as much as the work on them. At most `kMost` bytes are kept.
class Rooms {
 public:
  static Rooms& all() {
    static Rooms* made = new Rooms;  // never destroyed: threads may outlive static objects
    return *made;
  }
  char* take(std::size_t bytes) {
    {
      const std::lock_guard<std::mutex> guard(lock_);
      for (std::size_t k = kept_.size(); k-- > 0;)
        if (kept_[k].first == bytes) {
          char* const found = kept_[k].second;
          kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(k));
          held_ -= bytes;
          return found;
        }
    }
    const std::size_t unit = bytes < kHugePage ? 64 : kHugePage;
    char* const made = static_cast<char*>(std::aligned_alloc(unit, bytes));
    if (!made) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    if (unit == kHugePage) madvise(made, bytes, MADV_HUGEPAGE);  // fewer page faults
#endif
    return made;
  }
  void give_back(char* at, std::size_t bytes) {
    const std::lock_guard<std::mutex> guard(lock_);
    if (held_ + bytes > kMost) return std::free(at);
    kept_.emplace_back(bytes, at);
    held_ += bytes;
  }
  static std::size_t rounded(std::size_t bytes) {
    const std::size_t unit = bytes < kHugePage ? 64 : kHugePage;
    return bytes ? (bytes + unit - 1) / unit * unit : unit;
  }

 private:
  static constexpr std::size_t kHugePage = std::size_t{1} << 21, kMost = std::size_t{1} << 25;
  std::mutex lock_;
  std::vector<std::pair<std::size_t, char*>> kept_;
  std::size_t held_ = 0;
};

// Polynomials of `kPolyWords`, aligned for the widest registers and wiped on destruction: they may hold secrets.
class Words {
 public:
  explicit Words(std::size_t polynomials)
      : bytes_(polynomials * lattice::kPolyWords * 8), at_(Rooms::all().take(Rooms::rounded(bytes_))) {}
  ~Words() {
    std::memset(at_, 0, bytes_);
    asm volatile("" : : "r"(at_) : "memory");
    Rooms::all().give_back(at_, Rooms::rounded(bytes_));
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
