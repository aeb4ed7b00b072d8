#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/check.h"
#include "common/lora/lora_gradients.h"
#include "common/lora/merge.h"
#include "common/ops/cpu/adamw.h"
#include "common/process/threads.h"
#include "common/types/scoped_denormals.h"
#include "common/types/tensor_view.h"
#include "common/weights/shard_ops.h"

namespace tandem {
namespace {

constexpr int64_t kTaskElements = 1 << 16;
constexpr int64_t kMergedRows = 32;  // per task: a tile of A is packed for each task
constexpr int64_t kGradientRows = 16, kGradientColumns = 256;
constexpr int64_t kRoundedElements =
    1 << 12;  // at a time, so that they stay in the first-level cache

void AppendRounded(const float* masters, int64_t count, DigestRun* run) {
  Bf16 rounded[kRoundedElements] = {};
  const AdamWKernels& kernels = *RunnableAdamWKernels()[0];
  for (int64_t at = 0; at < count; at += kRoundedElements) {
    const int64_t some = std::min(kRoundedElements, count - at);
    kernels.round(masters + at, rounded, some);
    run->Append(rounded, some * static_cast<int64_t>(sizeof(Bf16)));
  }
}

// Rows [first, last) of a block.
MergeBlock RowsOf(MergeBlock block, int64_t first, int64_t last) {
  const auto at = [&](DType dtype) {
    return first * block.in * static_cast<int64_t>(DTypeBytes(dtype));
  };
  block.base = static_cast<const std::byte*>(block.base) + at(block.base_dtype);
  block.out = static_cast<std::byte*>(block.out) + at(block.out_dtype);
  block.b += first * block.rank;
  block.rows = last - first;
  return block;
}

class CpuShardOps final : public ShardOps {
 public:
  explicit CpuShardOps(std::shared_ptr<ThreadPool> pool) : pool_(std::move(pool)) {}

  void Round(const float* values, Bf16* rounded, int64_t count) override {
    RoundToBf16(*pool_, values, rounded, count);
  }

  void Convert(
      const void* from, DType from_dtype, void* to, DType to_dtype, int64_t count) override {
    const auto* const in = static_cast<const std::byte*>(from);
    auto* const out = static_cast<std::byte*>(to);
    pool_->ParallelRows(count, kTaskElements, [&](int64_t first, int64_t last, int /*thread*/) {
      const ScopedDenormals denormals;
      const absl::Status converted =
          ConvertElements(in + first * static_cast<int64_t>(DTypeBytes(from_dtype)), from_dtype,
                          out + first * static_cast<int64_t>(DTypeBytes(to_dtype)), to_dtype,
                          static_cast<size_t>(last - first));
      TANDEM_CHECK(converted.ok(), "values of a shard are F32 or BF16");
    });
  }

  void Merge(const MergeBlock& block) override {
    pool_->ParallelRows(block.rows, kMergedRows, [&](int64_t first, int64_t last, int /*thread*/) {
      MergeRows(RowsOf(block, first, last));
    });
  }

  // No other task writes these rows of dB and columns of dA.
  void AddLoraGradients(const LoraGradientBlock& block) override {
    pool_->ParallelRows(block.rows, kGradientRows,
                        [&](int64_t first, int64_t last, int /*thread*/) {
                          const ScopedDenormals denormals;
                          AddRowsOfLoraB(block, first, last);
                        });
    pool_->ParallelRows(block.in, kGradientColumns,
                        [&](int64_t first, int64_t last, int /*thread*/) {
                          const ScopedDenormals denormals;
                          AddColumnsOfLoraA(block, first, last);
                        });
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
