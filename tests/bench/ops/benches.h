// The parts of tandem-ops-bench.
#pragma once

#include <string>
#include <vector>

#include "tests/bench/ops/counterparts.h"

namespace tandem::bench {

// Prints "NAME: tandem 12.3 OTHER 4.5 ... ratio 2.7 ...": figures of all that `others` names beside
// ours, `scale` / seconds or, where `time`, seconds * scale; the ratio is against the fastest.
struct Comparison {
  std::string name;
  double scale = 1;
  bool time = false;
  std::string unit;
};
// Returns our best seconds. `more` is appended to the line: a function of our seconds.
double Compare(const Comparison& comparison,
               const std::function<void()>& ours,
               const std::vector<Counterpart>& others,
               const std::function<std::string(double)>& more);

void BenchLinear(int threads, bool counterparts);
void BenchAttention(int threads, bool counterparts);
void BenchBackward();
void BenchLogits();

}  // namespace tandem::bench
