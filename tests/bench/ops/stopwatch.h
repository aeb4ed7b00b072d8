// Times of the ops benchmark: the best of many runs.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include <time.h>

namespace tandem::bench {

// CLOCK_MONOTONIC, or CLOCK_PROCESS_CPUTIME_ID: CPU seconds, for one thread on a busy machine.
inline clockid_t g_clock = CLOCK_MONOTONIC;

inline double ReadClock(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}
inline double WallSeconds() { return ReadClock(CLOCK_MONOTONIC); }

// The best seconds of every body. They take turns in short bursts, so that whatever disturbs the
// machine disturbs all; the first run of a burst does not count, unless it is longer than one.
inline std::vector<double> BestOf(const std::vector<std::function<void()>>& bodies) {
  constexpr int kTurns = 3;
  constexpr double kBurst = 0.02;
  std::vector<double> best(bodies.size(), 1e9);
  for (int turn = 0; turn < kTurns; ++turn) {
    for (size_t i = 0; i < bodies.size(); ++i) {
      const double start = ReadClock(g_clock);
      for (int run = 0; run < 3 || ReadClock(g_clock) - start < kBurst; ++run) {
        const double from = ReadClock(g_clock);
        bodies[i]();
        const double seconds = ReadClock(g_clock) - from;
        if (run > 0 || seconds > kBurst) best[i] = std::min(best[i], seconds);
        if (seconds > 5 * kBurst) break;
      }
    }
  }
  return best;
}
inline double BestSeconds(const std::function<void()>& body) { return BestOf({body})[0]; }

}  // namespace tandem::bench
