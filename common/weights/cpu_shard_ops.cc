#include <algorithm>
#include <cstring>
#include <utility>

#include "common/ops/cpu/adamw.h"
#include "common/ops/cpu/thread_pool.h"
#include "common/weights/shard_ops.h"

namespace tandem {
namespace {

constexpr int64_t kTaskElements = 1 << 16;
constexpr int64_t kRoundedElements = 1 << 12;  // at a time: stays in the first-level cache

void AppendRounded(const float* masters, int64_t count, DigestRun* run) {
  Bf16 rounded[kRoundedElements] = {};
  const AdamWKernels& kernels = *RunnableAdamWKernels()[0];
  for (int64_t at = 0; at < count; at += kRoundedElements) {
    const int64_t some = std::min(kRoundedElements, count - at);
    kernels.round(masters + at, rounded, some);
    run->Append(rounded, some * static_cast<int64_t>(sizeof(Bf16)));
  }
}

class CpuShardOps final : public ShardOps {
 public:
  explicit CpuShardOps(std::shared_ptr<ThreadPool> pool) : pool_(std::move(pool)) {}

  void Round(const float* values, Bf16* rounded, int64_t count) override {
    RoundToBf16(*pool_, values, rounded, count);
  }

  absl::StatusOr<std::vector<double>> SumsOfSquares(
      const std::vector<FloatRange>& ranges) override {
    std::vector<double> sums;
    for (const FloatRange& range : ranges) {
      sums.push_back(SumOfSquares(*pool_, range.values, range.count));
    }
    return sums;
  }

  absl::StatusOr<int64_t> Step(const AdamWArrays& arrays, const AdamWFactors& factors) override {
    return AdamWUpdate(*pool_, arrays, factors);
  }

  absl::StatusOr<std::vector<DigestRun>> Digest(const std::vector<MasterRun>& runs,
                                                DType dtype) override {
    std::vector<DigestRun> digests;
    for (const MasterRun& run : runs) digests.push_back(DigestOfRun(run, dtype));
    return digests;
  }

  absl::Status ReadSample(const std::byte* from,
                          int64_t bytes,
                          int64_t distance,
                          std::byte* to_host) override {
    for (int64_t at = 0; at < bytes; at += distance, to_host += kSampleBytes) {
      std::memcpy(to_host, from + at, static_cast<size_t>(std::min(kSampleBytes, bytes - at)));
    }
    return absl::OkStatus();
  }

 private:
  DigestRun DigestOfRun(const MasterRun& run, DType dtype) {
    const auto element = static_cast<int64_t>(DTypeBytes(dtype));
    const int64_t tasks = (run.count + kTaskElements - 1) / kTaskElements;
    std::vector<DigestRun> parts;
    for (int64_t task = 0; task < tasks; ++task) {
      parts.emplace_back(run.offset + task * kTaskElements * element);
    }
    pool_->ParallelFor(tasks, [&](int64_t task, int /*thread*/) {
      const int64_t first = task * kTaskElements;
      const int64_t some = std::min(kTaskElements, run.count - first);
      DigestRun& part = parts[static_cast<size_t>(task)];
      if (dtype == DType::kBFloat16) {
        AppendRounded(run.masters + first, some, &part);
      } else {
        part.Append(run.masters + first, some * element);
      }
    });
    DigestRun whole(run.offset);
    for (const DigestRun& part : parts) whole.Join(part);
    return whole;
  }

  const std::shared_ptr<ThreadPool> pool_;
};

}  // namespace

std::unique_ptr<ShardOps> CreateCpuShardOps(std::shared_ptr<ThreadPool> pool) {
  return std::make_unique<CpuShardOps>(std::move(pool));
}

}  // namespace tandem
