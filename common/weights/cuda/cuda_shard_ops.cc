#include "common/weights/cuda/cuda_shard_ops.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/numeric.h"
#include "common/base/status.h"
#include "common/lora/lora_gradients.h"
#include "common/lora/merge.h"
#include "common/ops/cuda/rows/adamw.h"
#include "common/weights/cuda/weight_pass.h"
#include "common/weights/cuda/weight_runs.h"

namespace tandem {
namespace {

// Slots of CudaContext::Scratch; the ops use lower ones and attention higher ones.
constexpr int kLanesSlot = 5;
constexpr int kResultsSlot = 6;

constexpr int64_t kRunsAtOnce = 256;

// The bytes of a run before its first whole block and after its last one; the host digests them.
struct Edges {
  int64_t head = 0, whole = 0, tail = 0;  // bytes of the run
};

Edges EdgesOf(int64_t offset, int64_t bytes) {
  Edges edges;
  edges.head = std::min(bytes, RoundUp(offset, kDigestBlockBytes) - offset);
  edges.tail = (bytes - edges.head) % kDigestBlockBytes;
  edges.whole = bytes - edges.head - edges.tail;
  return edges;
}

class CudaShardOps final : public ShardOps {
 public:
  CudaShardOps(CudaContext* context, std::unique_ptr<DeviceSums> sums)
      : context_(context), sums_(std::move(sums)) {}

  void Round(const float* values, Bf16* rounded, int64_t count) override {
    LaunchRoundArray(context_->stream(), values, rounded, count, nullptr);
  }

  void Convert(
      const void* from, DType from_dtype, void* to, DType to_dtype, int64_t count) override {
    CheckFloats(from_dtype, to_dtype);
    if (from_dtype == to_dtype) {
      if (count > 0) context_->Copy(to, from, count * static_cast<int64_t>(DTypeBytes(to_dtype)));
    } else if (to_dtype == DType::kBFloat16) {
      Round(static_cast<const float*>(from), static_cast<Bf16*>(to), count);
    } else {
      LaunchWiden(context_->stream(), static_cast<const Bf16*>(from), static_cast<float*>(to),
                  count);
    }
  }

  void Merge(const MergeBlock& block) override {
    CheckFloats(block.base_dtype, block.out_dtype);
    TANDEM_CHECK(block.rank > 0 && block.rule == MergeRule::kServed,
                 "a GPU merges adapters by the rule kServed only");
    LaunchMerge(context_->stream(), block);
  }

  void AddLoraGradients(const LoraGradientBlock& block) override {
    LaunchAddLoraGradients(context_->stream(), block);
  }

  absl::StatusOr<std::vector<double>> SumsOfSquares(
      const std::vector<FloatRange>& ranges) override {
    int64_t lanes = 0, groups = 0;
    for (const FloatRange& range : ranges) {
      lanes = std::max(lanes, SquareLanes(range.count));
      groups += SquareGroups(range.count);
    }
    // The ranges run one after the other and share the lanes' sums.
    auto* const lane_sums = Scratch<double>(kLanesSlot, lanes);
    auto* const group_sums = Scratch<double>(kResultsSlot, groups);
    int64_t next = 0;
    for (const FloatRange& range : ranges) {
      if (!context_->launching()) break;  // out of memory; Read returns the error
      LaunchSumOfSquares(context_->stream(), range.values, range.count, lane_sums,
                         group_sums + next);
      next += SquareGroups(range.count);
    }
    TANDEM_ASSIGN_OR_RETURN(const std::vector<double> sums, Read(group_sums, groups));
    std::vector<double> squares;
    auto sum = sums.begin();
    for (const FloatRange& range : ranges) {
      double total = 0;
      for (int64_t group = SquareGroups(range.count); group > 0; --group) total += *sum++;
      squares.push_back(total);
    }
    return squares;
  }

  absl::StatusOr<int64_t> Step(const AdamWArrays& arrays, const AdamWFactors& factors) override {
    auto* const changed = Scratch<uint64_t>(kResultsSlot, 1);
    context_->Zero(changed, sizeof(uint64_t));
    if (context_->launching()) LaunchAdamW(context_->stream(), arrays, factors, changed);
    TANDEM_ASSIGN_OR_RETURN(const std::vector<uint64_t> counts, Read(changed, 1));
    return static_cast<int64_t>(counts[0]);
  }

  absl::StatusOr<std::vector<DigestRun>> Digest(const std::vector<MasterRun>& runs,
                                                DType dtype) override {
    std::vector<DigestRun> digests;
    for (size_t first = 0; first < runs.size(); first += kRunsAtOnce) {
      const size_t last = std::min<size_t>(runs.size(), first + kRunsAtOnce);
      const std::vector<MasterRun> some(runs.begin() + static_cast<int64_t>(first),
                                        runs.begin() + static_cast<int64_t>(last));
      TANDEM_RETURN_IF_ERROR(DigestSome(some, dtype, &digests));
    }
    return digests;
  }

  absl::Status ReadSample(const std::byte* from,
                          int64_t bytes,
                          int64_t distance,
                          std::byte* to_host) override {
    const std::byte* sample = from;
    int64_t sample_bytes = bytes;
    if (distance != kSampleBytes && bytes > 0) {
      WeightRuns blocks;
      std::byte* const gathered =
          Scratch<std::byte>(kLanesSlot, RoundUp(bytes, distance) / distance * kSampleBytes);
      sample = gathered;
      sample_bytes = 0;
      for (int64_t at = 0; at < bytes; at += distance) {
        const int64_t some = std::min(kSampleBytes, bytes - at);
        blocks.Add(from + at, gathered + sample_bytes, some);
        sample_bytes += some;
      }
      TANDEM_RETURN_IF_ERROR(blocks.Launch(*context_, WeightPassKind::kCopy));
    }
    if (sample_bytes > 0) context_->Read(to_host, sample, sample_bytes);
    return context_->Synchronize();
  }

 private:
  template <typename T>
  T* Scratch(int slot, int64_t count) {
    const int64_t bytes = std::max<int64_t>(count, 1) * static_cast<int64_t>(sizeof(T));
    return reinterpret_cast<T*>(context_->Scratch(slot, bytes));
  }
  template <typename T>
  absl::StatusOr<std::vector<T>> Read(const T* values, int64_t count) {
    std::vector<T> read(static_cast<size_t>(count));
    if (count > 0) context_->Read(read.data(), values, count * static_cast<int64_t>(sizeof(T)));
    TANDEM_RETURN_IF_ERROR(context_->Synchronize());
    return read;
  }

  static void CheckFloats(DType from, DType to) {
    for (const DType dtype : {from, to}) {
      TANDEM_CHECK(dtype == DType::kFloat32 || dtype == DType::kBFloat16,
                   "values of a shard are F32 or BF16");
    }
  }

  // Digests whole blocks here, from the masters, and copies the masters at the edges to the host,
  // all in one copy.
  absl::Status DigestSome(const std::vector<MasterRun>& runs,
                          DType dtype,
                          std::vector<DigestRun>* digests) {
    const auto element = static_cast<int64_t>(DTypeBytes(dtype));
    WeightRuns whole;
    auto* const edges = Scratch<float>(kResultsSlot, std::ssize(runs) * 2 * kEdgeElements);
    for (int64_t i = 0; i < std::ssize(runs); ++i) {
      const MasterRun& run = runs[static_cast<size_t>(i)];
      const Edges cut = EdgesOf(run.offset, run.count * element);
      const float* const body = run.masters + cut.head / element;
      whole.Add(body, nullptr, cut.whole, run.offset + cut.head, i);
      CopyEdge(edges + 2 * i * kEdgeElements, run.masters, cut.head / element);
      CopyEdge(edges + (2 * i + 1) * kEdgeElements, body + cut.whole / element, cut.tail / element);
    }
    TANDEM_RETURN_IF_ERROR(sums_->Clear(std::ssize(runs)));
    TANDEM_RETURN_IF_ERROR(whole.Launch(
        *context_, dtype == DType::kBFloat16 ? WeightPassKind::kReadRounded : WeightPassKind::kRead,
        sums_.get()));
    TANDEM_ASSIGN_OR_RETURN(const std::vector<float> read,
                            Read(edges, std::ssize(runs) * 2 * kEdgeElements));
    TANDEM_ASSIGN_OR_RETURN(const std::vector<BlockSums> sums, sums_->Read(std::ssize(runs)));
    for (size_t i = 0; i < runs.size(); ++i) {
      const Edges cut = EdgesOf(runs[i].offset, runs[i].count * element);
      const float* const edge = read.data() + 2 * i * kEdgeElements;
      DigestRun& digest = digests->emplace_back(runs[i].offset);
      AppendEdge(edge, cut.head / element, dtype, &digest);
      if (cut.whole > 0) digest.AppendBlocks(sums[i], cut.whole);
      AppendEdge(edge + kEdgeElements, cut.tail / element, dtype, &digest);
    }
    return absl::OkStatus();
  }

  void CopyEdge(float* to, const float* from, int64_t count) {
    if (count > 0) context_->Copy(to, from, count * static_cast<int64_t>(sizeof(float)));
  }

  static void AppendEdge(const float* masters, int64_t count, DType dtype, DigestRun* digest) {
    if (dtype == DType::kFloat32) {
      digest->Append(masters, count * static_cast<int64_t>(sizeof(float)));
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      const Bf16 rounded = ToBf16(masters[i]);
      digest->Append(&rounded, sizeof(rounded));
    }
  }

  // At most one block of bf16 elements at an edge.
  static constexpr int64_t kEdgeElements = kDigestBlockBytes / static_cast<int64_t>(sizeof(Bf16));
  static_assert(kRunsAtOnce * 2 * kEdgeElements * sizeof(float) == kDigestEdgesBytes);

  CudaContext* const context_;
  const std::unique_ptr<DeviceSums> sums_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ShardOps>> CreateCudaShardOps(CudaContext* context) {
  TANDEM_ASSIGN_OR_RETURN(auto sums, DeviceSums::Create(context, kRunsAtOnce));
  return std::make_unique<CudaShardOps>(context, std::move(sums));
}

}  // namespace tandem
