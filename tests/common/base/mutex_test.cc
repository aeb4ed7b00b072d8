#include "common/base/mutex.h"

#include <thread>
#include <vector>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

struct Counter {
  Mutex mutex;
  ConditionVariable changed;
  int count ABSL_GUARDED_BY(mutex) = 0;
};

TEST_CASE("One thread at a time holds a mutex", "[mutex]") {
  constexpr int kThreads = 4, kRounds = 2000;
  Counter counter;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&counter] {
        for (int round = 0; round < kRounds; ++round) {
          const MutexLock lock(counter.mutex);
          ++counter.count;
        }
      });
    }
  }
  const MutexLock lock(counter.mutex);
  REQUIRE(counter.count == kThreads * kRounds);
}

TEST_CASE("A waiting thread goes on when it is notified and holds the mutex again", "[mutex]") {
  Counter counter;
  std::jthread other([&counter] {
    for (int i = 0; i < 3; ++i) {
      const MutexLock lock(counter.mutex);
      ++counter.count;
      counter.changed.NotifyAll();
    }
  });
  const MutexLock lock(counter.mutex);
  while (counter.count < 3) counter.changed.Wait(counter.mutex);
  REQUIRE(counter.count == 3);
}

TEST_CASE("Waiting ends at its deadline", "[mutex]") {
  Counter counter;
  const MutexLock lock(counter.mutex);
  const auto now = std::chrono::steady_clock::now();
  REQUIRE_FALSE(counter.changed.WaitUntil(counter.mutex, now));
  REQUIRE(counter.count == 0);
}

}  // namespace
}  // namespace tandem
