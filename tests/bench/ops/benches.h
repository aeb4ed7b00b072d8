// The parts of tandem-ops-bench. Lines of "op ..." are held to the cost of exactness: their fastest
// counterpart must not be more than 1.05 times as fast.
#pragma once

#include "tests/bench/ops/compare.h"

namespace tandem::bench {

void BenchLinear(const Settings& settings);
void BenchAttention(const Settings& settings);
void BenchRows(const Settings& settings);
void BenchHead(const Settings& settings);
void BenchBackward(const Settings& settings);
void BenchAdamW(const Settings& settings);

}  // namespace tandem::bench
