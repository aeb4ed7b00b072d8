// What the calling thread is at, among all threads of the test program that are watched.
#pragma once

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "common/base/progress.h"

namespace tandem::testing {

// The number that the calling thread has in CurrentProgress. Makes its first WorkStep.
inline int64_t OwnThread() {
  thread_local const int64_t thread = [] {
    static std::atomic<int64_t> threads{0};
    const int64_t number = ++threads;
    const WorkStep step("looking for itself", {"probe", number});
    const std::string mark = "probe " + std::to_string(number);
    for (const ThreadProgress& progress : CurrentProgress()) {
      if (progress.part == mark) return progress.thread;
    }
    throw std::logic_error("a thread in a WorkStep has no progress");
  }();
  return thread;
}

inline ThreadProgress OwnProgress() {
  const int64_t own = OwnThread();
  for (const ThreadProgress& progress : CurrentProgress()) {
    if (progress.thread == own) return progress;
  }
  throw std::logic_error("a thread that has had a WorkStep has no progress");
}

}  // namespace tandem::testing
