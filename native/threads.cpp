#include "threads.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace {

// A call of `run_parts`, on the stack of its caller.
struct Call {
  void (*body)(void*, std::size_t);
  void* with;
  std::size_t parts, next = 0, running = 0;  // `next` is the first part that nobody has begun
  std::exception_ptr failure = nullptr;
  std::condition_variable ended{};
};

class Threads {
 public:
  void run(Call& call) {
    std::unique_lock<std::mutex> lock(mutex_);
    calls_.push_back(&call);
    needed_ += call.parts - 1;
    while (started_ < needed_ && start()) ++started_;
    lock.unlock();
    for (std::size_t part = 1; part < call.parts; ++part) begun_.notify_one();
    lock.lock();
    while (call.next < call.parts) take(call, lock);
    call.ended.wait(lock, [&] { return call.running == 0; });
    needed_ -= call.parts - 1;
    if (call.failure) std::rethrow_exception(call.failure);
  }

 private:
  // Runs the next part of a call, without the lock.
  void take(Call& call, std::unique_lock<std::mutex>& lock) {
    const std::size_t part = call.next++;
    if (call.next == call.parts) calls_.erase(std::find(calls_.begin(), calls_.end(), &call));
    ++call.running;
    lock.unlock();
    std::exception_ptr failure;
    try {
      call.body(call.with, part);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure) call.failure = failure;
    if (--call.running == 0) call.ended.notify_one();
  }

  // Signals are for the threads of the interpreter: this one receives none.
  bool start() {
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    bool started = true;
    try {
      std::thread([this] {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
          begun_.wait(lock, [this] { return !calls_.empty(); });
          take(*calls_.front(), lock);
        }
      }).detach();
    } catch (const std::system_error&) {
      started = false;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
  }

  std::mutex mutex_;
  std::condition_variable begun_;
  std::vector<Call*> calls_;  // those with a part that nobody has begun
  std::size_t started_ = 0, needed_ = 0;  // threads, and how many the calls of now need
};

// A process that forked has only the thread that forked: it starts others when it needs them. They end with the process.
Threads& threads() {
  static std::atomic<Threads*> made{nullptr};
  [[maybe_unused]] static const int handled = pthread_atfork(nullptr, nullptr, [] { made = nullptr; });
  Threads* found = made;
  if (!found) {
    Threads* own = new Threads;
    if (made.compare_exchange_strong(found, own)) return *own;
    delete own;
  }
  return *found;
}

}  // namespace

void run_parts(std::size_t parts, void (*body)(void*, std::size_t), void* with) {
  Call call{body, with, parts};
  threads().run(call);
}
