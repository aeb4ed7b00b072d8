#include "trainer_worker/shard/changed_weights.h"

#include <algorithm>
#include <cstring>

#include "common/base/status.h"

namespace tandem {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 20;

// The distance between sampled blocks of a compute copy of `bytes`, in blocks.
int64_t BlockDistance(int64_t bytes, int64_t element_bytes) {
  // The distance is odd, because rows of a matrix are often a multiple of a power of two.
  const int64_t blocks = bytes / (kMostElements * element_bytes);
  return blocks == 0 ? 1 : (blocks + 1) | 1;
}

int64_t ElementBytes(const ParameterShard& shard) {
  return static_cast<int64_t>(DTypeBytes(shard.plan().layout().dtype()));
}

}  // namespace

absl::StatusOr<std::vector<std::byte>> ElementSample::Read(ParameterShard& shard) {
  const int64_t element = ElementBytes(shard), bytes = shard.elements() * element;
  const int64_t distance = BlockDistance(bytes, element) * ShardOps::kSampleBytes;
  const int64_t whole = bytes / distance, rest = bytes % distance;
  std::vector<std::byte> values(
      static_cast<size_t>(whole * ShardOps::kSampleBytes + std::min(rest, ShardOps::kSampleBytes)));
  TANDEM_RETURN_IF_ERROR(shard.ops()->ReadSample(shard.compute(), bytes, distance, values.data()));
  shard.Evict();
  return values;
}

absl::Status ElementSample::Take(ParameterShard& shard) {
  TANDEM_ASSIGN_OR_RETURN(values_, Read(shard));
  return absl::OkStatus();
}

absl::StatusOr<double> ElementSample::Changed(ParameterShard& shard) const {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::byte> now, Read(shard));
  const auto element = static_cast<size_t>(ElementBytes(shard));
  int64_t changed = 0;
  for (size_t at = 0; at < now.size(); at += element) {
    changed += std::memcmp(&now[at], &values_[at], element) != 0 ? 1 : 0;
  }
  const auto held = static_cast<double>(std::max<size_t>(1, values_.size() / element));
  return static_cast<double>(changed) / held * static_cast<double>(shard.elements());
}

absl::Status ChangedWeightFraction::BeforeStep(ParameterShard& shard, bool last) {
  const bool counted = shard.plan().layout().dtype() != DType::kFloat32;
  const bool needed = version_ >= 0 && steps_ == 0 && !(last && counted);
  return needed ? before_.Take(shard) : absl::OkStatus();
}

void ChangedWeightFraction::AfterStep(int64_t changed) {
  ++steps_;
  changed_ = changed_ < 0 || changed < 0 ? -1 : changed_ + changed;
}

absl::StatusOr<double> ChangedWeightFraction::Changed(ParameterShard& shard) const {
  if (steps_ == 0) return 0.0;
  if (before_.taken()) return before_.Changed(shard);
  // An element may be counted in several steps, so the sum is limited to the number of elements.
  return static_cast<double>(changed_ < 0 ? shard.elements()
                                          : std::min(changed_, shard.elements()));
}

absl::StatusOr<double> ChangedWeightFraction::Of(int64_t version,
                                                 bool published,
                                                 ParameterShard& shard,
                                                 Communicator& communicator) {
  TANDEM_ASSIGN_OR_RETURN(const double changed, Changed(shard));
  double sums[] = {changed, published ? 0.0 : 1.0};  // of all ranks
  TANDEM_RETURN_IF_ERROR(communicator.AllReduceSum(sums, 2));
  if (version == version_) return share_;
  const double share =
      version_ < 0 ? 1.0
                   : std::min(1.0, sums[0] / static_cast<double>(shard.plan().total_elements()));
  if (sums[1] > 0) return share;
  *this = {};
  version_ = version;
  share_ = share;
  return share;
}

}  // namespace tandem
