#include <algorithm>
#include <utility>

#include "common/weights/padding.h"
#include "common/weights/storage_ops.h"
#include "common/weights/stored_rows.h"

namespace tandem {
namespace {

constexpr int64_t kNanBytes = 32 << 10;  // scrambled at a time: stay in the first-level cache

class CpuStorageOps final : public StorageOps {
 public:
  CpuStorageOps(const WeightLayout* layout, std::byte* storage, std::shared_ptr<ThreadPool> pool)
      : layout_(layout), storage_(storage), pool_(std::move(pool)) {}

  const WeightLayout& layout() const override { return *layout_; }

  absl::Status StoreRows(const std::vector<DenseRows>& pieces) override {
    tandem::StoreRows(*pool_, *layout_, storage_, pieces);
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Digest>> DigestStored(
      const std::vector<const TensorPlace*>& places) override {
    return tandem::DigestStored(*pool_, *layout_, storage_, places);
  }

  absl::Status Scramble(const std::vector<const TensorPlace*>& places) override {
    // By groups: fused tensors of one group may share a panel of packed rows.
    pool_->ParallelFor(layout_->num_layers() + 1, [&](int64_t group, int /*thread*/) {
      ScrambleGroup(static_cast<int>(group) - 1, places);
    });
    return absl::OkStatus();
  }

  absl::Status CheckPadding() override { return tandem::CheckPadding(*layout_, storage_); }

  absl::Status ReadRows(const TensorPlace& place,
                        int64_t row,
                        int64_t rows,
                        void* to_host) override {
    layout_->ReadRows(storage_ + layout_->group_offset(place.layer), place, row, rows, to_host);
    return absl::OkStatus();
  }

 private:
  void ScrambleGroup(int layer, const std::vector<const TensorPlace*>& places) {
    std::byte* const group = storage_ + layout_->group_offset(layer);
    std::vector<std::byte> nan;
    for (const TensorPlace* place : places) {
      if (place->layer != layer) continue;
      const int64_t row_bytes = place->cols() * static_cast<int64_t>(DTypeBytes(layout_->dtype()));
      const int64_t piece = DigestPieceRows(row_bytes, kNanBytes);
      nan.resize(std::max<size_t>(nan.size(), std::min(piece, place->rows()) * row_bytes),
                 std::byte{0xff});
      for (int64_t row = 0; row < place->rows(); row += piece) {
        const int64_t rows = std::min(piece, place->rows() - row);
        layout_->WriteRows(group, *place, row, rows, nan.data());
      }
    }
  }

  const WeightLayout* const layout_;
  std::byte* const storage_;
  const std::shared_ptr<ThreadPool> pool_;
};

}  // namespace

std::unique_ptr<StorageOps> CreateCpuStorageOps(const WeightLayout* layout,
                                                std::byte* storage,
                                                std::shared_ptr<ThreadPool> pool) {
  return std::make_unique<CpuStorageOps>(layout, storage, std::move(pool));
}

}  // namespace tandem
