// The optimizer's passes over memory.
#include <vector>

#include <fmt/core.h>

#include "common/ops/cpu/adamw.h"
#include "tests/bench/ops/benches.h"

namespace tandem::bench {

void BenchAdamW(const Settings& settings) {
  constexpr int64_t kCount = int64_t{32} << 20;  // beyond every cache, as a model's parameters are
  const auto size = static_cast<size_t>(kCount);
  std::vector<float> master(size, 0.5f), gradient(size, 1e-3f), exp_avg(size), exp_avg_sq(size);
  std::vector<Bf16> rounded(size);
  const AdamWFactors factors = {.gradient_scale = 1,
                                .weight1 = 0.1f,
                                .beta2 = 0.999f,
                                .weight2 = 1e-3f,
                                .decay = 1 - 1e-7f,
                                .step_size = 1e-5f,
                                .sqrt_bias_correction2 = 1,
                                .eps = 1e-8f};
  ThreadPool pool(settings.threads);
  const auto compare = [&](const char* op, const auto& ours, auto counterparts) {
    Compare({fmt::format("op {} {} threads {}", op, kCount, settings.threads)}, ours,
            settings.counterparts ? counterparts(kCount) : Counterparts());
  };
  compare(
      "adamw",
      [&] {
        AdamWUpdate(pool,
                    {master.data(), gradient.data(), exp_avg.data(), exp_avg_sq.data(),
                     rounded.data(), kCount},
                    factors);
      },
      AdamWCounterparts);
  compare(
      "gradient norm", [&] { SumOfSquares(pool, gradient.data(), kCount); },
      SumOfSquaresCounterparts);
}

}  // namespace tandem::bench
