#include "common/weights/cuda/weight_runs.h"

#include "common/base/status.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<DeviceSums>> DeviceSums::Create(CudaContext* context,
                                                               int64_t pairs) {
  std::unique_ptr<DeviceSums> sums(new DeviceSums(context, pairs));
  auto memory = context->TryAllocate(pairs * static_cast<int64_t>(sizeof(BlockSums)));
  if (!memory.ok()) return Annotate(memory.status(), "the digests' sums");
  sums->sums_ = reinterpret_cast<uint64_t*>(*memory);
  return sums;
}

DeviceSums::~DeviceSums() {
  if (sums_ == nullptr) return;
  const int64_t bytes = pairs_ * static_cast<int64_t>(sizeof(BlockSums));
  context_->Free(reinterpret_cast<std::byte*>(sums_), bytes).IgnoreError();
}

absl::Status DeviceSums::Clear(int64_t pairs) {
  return context_->api().Fill(sums_, 0, pairs * static_cast<int64_t>(sizeof(BlockSums)),
                              context_->stream());
}

absl::StatusOr<std::vector<BlockSums>> DeviceSums::Read(int64_t pairs) {
  std::vector<BlockSums> sums(static_cast<size_t>(pairs));
  context_->Read(sums.data(), sums_, pairs * static_cast<int64_t>(sizeof(BlockSums)));
  TANDEM_RETURN_IF_ERROR(context_->Synchronize());
  return sums;
}

void WeightRuns::Add(const void* from, void* to, int64_t bytes, int64_t offset, int64_t sums) {
  if (bytes == 0) return;
  runs_.push_back({from, to, bytes, offset / kDigestBlockBytes, tiles_, sums});
  tiles_ += (bytes + kWeightTileBytes - 1) / kWeightTileBytes;
}

absl::Status WeightRuns::Launch(CudaContext& context, WeightPassKind kind, DeviceSums* sums) const {
  if (runs_.empty()) return absl::OkStatus();
  const WeightRun* const runs = context.Upload(runs_);
  if (context.failed())
    return context.Synchronize();  // without the upload, a kernel would read undefined runs
  LaunchWeightPass(kind,
                   {.runs = runs,
                    .count = static_cast<int64_t>(runs_.size()),
                    .tiles = tiles_,
                    .sums = sums == nullptr ? nullptr : sums->data()},
                   context.stream());
  return context.api().LastError();
}

}  // namespace tandem
