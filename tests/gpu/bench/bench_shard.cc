#include "tests/gpu/bench/bench_shard.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/weights/cuda/cuda_shard_ops.h"
#include "tests/gpu/bench/random_weights.h"

namespace tandem::testing {
namespace {

constexpr int64_t kPieceElements = int64_t{16} << 20;
constexpr auto kElement = static_cast<int64_t>(sizeof(Bf16));

}  // namespace

absl::StatusOr<std::unique_ptr<BenchShard>> BenchShard::Create(CudaDevice* device,
                                                               const WeightLayout* layout) {
  std::unique_ptr<BenchShard> shard(new BenchShard(device, layout));
  int64_t bytes = 0, largest = 0;
  for (const TensorPlace& place : layout->places()) {
    shard->shared_.offsets.push_back(bytes);
    bytes += NumElements(place.shape) * kElement;
    largest = std::max(largest, NumElements(place.shape));
  }
  TANDEM_ASSIGN_OR_RETURN(shard->ops_, CreateCudaShardOps(&device->context()));
  TANDEM_ASSIGN_OR_RETURN(shard->memory_, device->ReserveShareable("weights", bytes, nullptr));
  const int64_t piece = std::min(largest, kPieceElements) * static_cast<int64_t>(sizeof(float));
  TANDEM_ASSIGN_OR_RETURN(shard->masters_, device->Reserve("master", piece, nullptr));
  TANDEM_RETURN_IF_ERROR(shard->masters_->Map());
  shard->shared_.shard = {shard->memory_->data(), shard->memory_->bytes(), shard->memory_->fd()};
  return shard;
}

absl::StatusOr<Digest> BenchShard::FillTensor(const TensorPlace& place,
                                              int64_t offset,
                                              uint64_t seed) {
  auto* const masters = reinterpret_cast<float*>(masters_->data());
  auto* const rounded = reinterpret_cast<Bf16*>(memory_->data() + offset);
  const int64_t elements = NumElements(place.shape);
  DigestRun whole;
  for (int64_t first = 0; first < elements; first += kPieceElements) {
    const int64_t count = std::min(kPieceElements, elements - first);
    LaunchRandomWeights(device_->context().stream(), masters, offset / kElement + first, count,
                        seed);
    ops_->Round(masters, rounded + first, count);
    TANDEM_ASSIGN_OR_RETURN(const std::vector<DigestRun> run,
                            ops_->Digest({{masters, count, first * kElement}}, DType::kBFloat16));
    whole.Join(run[0]);
  }
  return whole.Finish();
}

absl::Status BenchShard::Fill(uint64_t seed) {
  digests_.clear();
  for (const TensorPlace& place : layout_->places()) {
    TANDEM_ASSIGN_OR_RETURN(digests_.emplace_back(),
                            FillTensor(place, shared_.offsets[digests_.size()], seed));
  }
  return device_->Synchronize();
}

absl::Status BenchShard::Damage() {
  // Every random one is less.
  const Bf16 two{0x4000};
  device_->Copy(memory_->data() + shared_.offsets.back(), &two, sizeof(two));
  return device_->Synchronize();
}

absl::StatusOr<const void*> BenchShard::GatherRows(const TensorRows& rows, std::byte* /*dest*/) {
  const auto tensor = static_cast<size_t>(rows.place - layout_->places().data());
  return memory_->data() + shared_.offsets[tensor] + rows.row * rows.row_bytes;
}

}  // namespace tandem::testing
