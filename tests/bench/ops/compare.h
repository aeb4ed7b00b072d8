// An op beside its counterparts, in one line.
#pragma once

#include <functional>
#include <string>

#include "tests/bench/ops/counterparts/counterparts.h"

namespace tandem::bench {

// How the parts of the benchmark run.
struct Settings {
  int threads = 2;
  bool counterparts = true;
};

// "NAME: tandem 12.30 OTHER 24.60 ratio 2.00 (OTHER) us": best times of all bodies, in microseconds
// or, where `work` is given, as GFLOP/s for that many FLOP. `ratio` is the time of the fastest
// whole counterpart, named behind it, to ours.
struct Comparison {
  std::string name;
  double work = 0;
};
// Returns our best seconds. `more` is appended to the line: a function of our seconds.
double Compare(const Comparison& comparison,
               const std::function<void()>& ours,
               const Counterparts& others,
               const std::function<std::string(double)>& more = nullptr);

}  // namespace tandem::bench
