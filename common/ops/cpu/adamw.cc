#include "common/ops/cpu/adamw.h"

#include <algorithm>
#include <atomic>

#include "common/types/scoped_denormals.h"

namespace tandem {
namespace {

constexpr int64_t kTaskElements = 1 << 18;
static_assert(kTaskElements % kSquaresBlock == 0);

// Calls body(first, count) for ranges of `elements`.
template <typename Body>
void ForRanges(ThreadPool& pool, int64_t elements, Body&& body) {
  const int64_t tasks = (elements + kTaskElements - 1) / kTaskElements;
  pool.ParallelFor(tasks, [&](int64_t task, int /*thread*/) {
    const ScopedDenormals denormals;  // moments decay into denormals, which the formula keeps
    const int64_t first = task * kTaskElements;
    body(first, std::min(kTaskElements, elements - first));
  });
}

const AdamWKernels& Kernels() { return *RunnableAdamWKernels()[0]; }

}  // namespace

const std::vector<const AdamWKernels*>& RunnableAdamWKernels() {
  static const std::vector<const AdamWKernels*> runnable = [] {
    std::vector<const AdamWKernels*> kernels;
    const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
    if (avx2 && __builtin_cpu_supports("avx512f") != 0) kernels.push_back(&kAdamWAvx512);
    if (avx2) kernels.push_back(&kAdamWAvx2);
    kernels.push_back(&kAdamWBaseline);
    return kernels;
  }();
  return runnable;
}

int64_t AdamWUpdate(ThreadPool& pool, const AdamWArrays& arrays, const AdamWFactors& factors) {
  std::atomic<int64_t> changed{0};
  ForRanges(pool, arrays.count, [&](int64_t first, int64_t count) {
    AdamWArrays range = arrays;
    range.master += first;
    range.gradient += first;
    range.exp_avg += first;
    range.exp_avg_sq += first;
    if (range.rounded != nullptr) range.rounded += first;
    range.count = count;
    changed += Kernels().update(range, factors);
  });
  return changed;
}

int64_t RoundToBf16(ThreadPool& pool, const float* values, Bf16* rounded, int64_t count) {
  std::atomic<int64_t> changed{0};
  ForRanges(pool, count, [&](int64_t first, int64_t elements) {
    changed += Kernels().round(values + first, rounded + first, elements);
  });
  return changed;
}

double SumOfSquares(ThreadPool& pool, const float* values, int64_t count) {
  std::vector<double> sums(static_cast<size_t>((count + kSquaresBlock - 1) / kSquaresBlock * 8));
  ForRanges(pool, count, [&](int64_t first, int64_t elements) {
    Kernels().lane_squares(values + first, elements, sums.data() + first / kSquaresBlock * 8);
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace tandem
