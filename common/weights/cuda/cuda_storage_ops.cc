#include "common/weights/cuda/cuda_storage_ops.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/weights/cuda/weight_runs.h"
#include "common/weights/layout.h"

namespace tandem {
namespace {

class CudaStorageOps final : public StorageOps {
 public:
  CudaStorageOps(const WeightLayout* layout,
                 std::byte* storage,
                 CudaContext* context,
                 std::unique_ptr<DeviceSums> sums)
      : layout_(layout),
        storage_(storage),
        context_(context),
        sums_(std::move(sums)),
        gaps_(PaddingGaps(*layout)) {}

  const WeightLayout& layout() const override { return *layout_; }

  absl::Status StoreRows(const std::vector<DenseRows>& pieces, Location location) override {
    return location == Location::kDevice ? StoreFromDevice(pieces) : StoreFromHost(pieces);
  }

  absl::StatusOr<std::vector<Digest>> DigestStored(
      const std::vector<const TensorPlace*>& places) override {
    WeightRuns runs;
    std::vector<int64_t> bytes;
    for (const TensorPlace* place : places) {
      const auto tensor = static_cast<int64_t>(bytes.size());
      bytes.push_back(place->rows() * RowBytes(*place));
      runs.Add(Row(*place, 0), nullptr, bytes.back(), 0, tensor);
    }
    return Digests(runs, bytes);
  }

  absl::Status Scramble(const std::vector<const TensorPlace*>& places) override {
    WeightRuns runs;
    for (const TensorPlace* place : places) {
      runs.Add(nullptr, Row(*place, 0), place->rows() * RowBytes(*place));
    }
    return runs.Launch(*context_, WeightPassKind::kNan);
  }

  // Digests every gap and compares it with the digest of zeros; reads a gap back only if they
  // differ.
  absl::Status CheckPadding() override {
    for (size_t first = 0; first < gaps_.size(); first += static_cast<size_t>(sums_->pairs())) {
      const size_t last = std::min(gaps_.size(), first + static_cast<size_t>(sums_->pairs()));
      WeightRuns runs;
      std::vector<int64_t> bytes;
      for (size_t g = first; g < last; ++g) {
        const auto index = static_cast<int64_t>(bytes.size());
        bytes.push_back(gaps_[g].bytes());
        runs.Add(Gap(gaps_[g]), nullptr, bytes.back(), 0, index);
      }
      TANDEM_ASSIGN_OR_RETURN(const std::vector<Digest> digests, Digests(runs, bytes));
      for (size_t g = first; g < last; ++g) {
        TANDEM_RETURN_IF_ERROR(CheckGap(gaps_[g], digests[g - first]));
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadRows(const TensorPlace& place,
                        int64_t row,
                        int64_t rows,
                        void* to_host) override {
    context_->Read(to_host, Row(place, row), rows * RowBytes(place));
    return context_->Synchronize();
  }

 private:
  // In one kernel.
  absl::Status StoreFromDevice(const std::vector<DenseRows>& pieces) {
    WeightRuns runs;
    for (const DenseRows& piece : pieces) {
      runs.Add(piece.from, Row(*piece.place, piece.row), piece.rows * RowBytes(*piece.place));
    }
    return runs.Launch(*context_, WeightPassKind::kCopy);
  }
  absl::Status StoreFromHost(const std::vector<DenseRows>& pieces) {
    for (const DenseRows& piece : pieces) {
      TANDEM_RETURN_IF_ERROR(context_->api().Copy(Row(*piece.place, piece.row), piece.from,
                                                  piece.rows * RowBytes(*piece.place),
                                                  context_->stream()));
    }
    return absl::OkStatus();
  }

  int64_t RowBytes(const TensorPlace& place) const {
    return place.cols() * static_cast<int64_t>(DTypeBytes(layout_->dtype()));
  }
  std::byte* Row(const TensorPlace& place, int64_t row) const {
    return storage_ + layout_->group_offset(place.layer) + place.offset +
           (place.fused_row + row) * RowBytes(place);
  }
  const std::byte* Gap(const PaddingGap& gap) const {
    return storage_ + layout_->group_offset(gap.layer) + gap.begin;
  }

  // Each run counts as a tensor of its own, with its own pair of sums.
  absl::StatusOr<std::vector<Digest>> Digests(const WeightRuns& runs,
                                              const std::vector<int64_t>& bytes) {
    const auto pairs = static_cast<int64_t>(bytes.size());
    TANDEM_RETURN_IF_ERROR(sums_->Clear(pairs));
    TANDEM_RETURN_IF_ERROR(runs.Launch(*context_, WeightPassKind::kRead, sums_.get()));
    TANDEM_ASSIGN_OR_RETURN(const std::vector<BlockSums> sums, sums_->Read(pairs));
    std::vector<Digest> digests;
    for (size_t t = 0; t < bytes.size(); ++t) {
      DigestBuilder builder;
      builder.Add(sums[t]);
      digests.push_back(builder.Finish(bytes[t]));
    }
    return digests;
  }

  absl::Status CheckGap(const PaddingGap& gap, const Digest& digest) {
    std::vector<std::byte> held(static_cast<size_t>(gap.bytes()));
    if (digest == DigestOf(held.data(), gap.bytes())) return absl::OkStatus();
    context_->Read(held.data(), Gap(gap), gap.bytes());
    TANDEM_RETURN_IF_ERROR(context_->Synchronize());
    return CheckZero(gap, held.data());
  }

  const WeightLayout* const layout_;
  std::byte* const storage_;
  CudaContext* const context_;
  const std::unique_ptr<DeviceSums> sums_;
  const std::vector<PaddingGap> gaps_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StorageOps>> CreateCudaStorageOps(const WeightLayout* layout,
                                                                 std::byte* storage,
                                                                 CudaContext* context) {
  for (const TensorPlace& place : layout->places()) {
    if (!place.packed) continue;
    return InvalidArgument(
        "{} is stored in panels: a GPU computes from rows (WeightFormat::kRowMajor)", place.name);
  }
  TANDEM_ASSIGN_OR_RETURN(
      auto sums, DeviceSums::Create(context, static_cast<int64_t>(layout->places().size())));
  return std::make_unique<CudaStorageOps>(layout, storage, context, std::move(sums));
}

}  // namespace tandem
