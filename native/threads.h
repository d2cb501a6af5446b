// Threads that stay, which all kernels of a process share: to start one takes longer than many a kernel.
#pragma once

#include <cstddef>

// Calls body(with, part) for part = 0 .. parts-1 on this thread and on parts-1 others, and returns when all have ended.
// This thread takes over what no other has begun, so that all ends even where no thread can be started.
void run_parts(std::size_t parts, void (*body)(void* with, std::size_t part), void* with);

// Calls body(part) for part = 0 .. parts-1, at the same time; parts = 1 runs on this thread.
template <class Body>
void in_parallel(std::size_t parts, Body body) {
  if (parts == 1)
    body(std::size_t{0});
  else if (parts > 1)
    run_parts(parts, [](void* with, std::size_t part) { (*static_cast<Body*>(with))(part); }, &body);
}
