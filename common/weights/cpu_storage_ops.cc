#include "common/weights/cpu_storage_ops.h"

#include <algorithm>
#include <utility>

#include "common/base/numeric.h"
#include "common/memory/op_sizes.h"
#include "common/weights/layout.h"
#include "common/weights/storage_ops.h"

namespace tandem {
namespace {

constexpr int64_t kTaskBytes = 1 << 20;  // of a tensor for one thread at a time
constexpr int64_t kPieceBytes =
    32 << 10;  // re-read at a time, so that it stays in the first-level cache

int64_t RowBytes(const WeightLayout& layout, const TensorPlace& place) {
  return place.cols() * static_cast<int64_t>(DTypeBytes(layout.dtype()));
}

void Store(const WeightLayout& layout, std::byte* storage, const DenseRows& rows) {
  layout.WriteRows(storage + layout.group_offset(rows.place->layer), *rows.place, rows.row,
                   rows.rows, rows.from);
}

// Cuts rows into tasks that never share a panel of packed rows, so that threads do not write to one
// panel. Rows at both ends that fill only a part of a panel go to `rest`.
void CutAtPanels(const DenseRows& all,
                 int64_t row_bytes,
                 std::vector<DenseRows>* tasks,
                 std::vector<DenseRows>* rest) {
  const int64_t first = all.place->packed ? all.place->fused_row + all.row : 0;
  const int64_t last = first + all.rows;
  const int64_t whole_first = std::min(last, RoundUp(first, kPackedPanelRows));
  const int64_t whole_last =
      all.place->packed ? std::max(whole_first, last / kPackedPanelRows * kPackedPanelRows) : last;
  const auto part = [&](int64_t from, int64_t to) {
    return DenseRows{all.place, all.row + from - first, to - from,
                     all.from + (from - first) * row_bytes};
  };
  if (whole_first > first) rest->push_back(part(first, whole_first));
  if (last > whole_last) rest->push_back(part(whole_last, last));
  const int64_t step = DigestPieceRows(row_bytes, kTaskBytes);
  for (int64_t row = whole_first; row < whole_last; row += step) {
    tasks->push_back(part(row, std::min(row + step, whole_last)));
  }
}

// Digests rows [first, last) of a tensor; `first` must be a row at which a piece of the digest may
// begin.
DigestBuilder DigestRows(const WeightLayout& layout,
                         const std::byte* storage,
                         const TensorPlace& place,
                         int64_t first,
                         int64_t last) {
  const int64_t row_bytes = RowBytes(layout, place);
  const int64_t piece = DigestPieceRows(row_bytes, kPieceBytes);
  std::vector<std::byte> rows(std::min(piece, last - first) * row_bytes);
  const std::byte* group = storage + layout.group_offset(place.layer);
  DigestBuilder builder;
  for (int64_t row = first; row < last; row += piece) {
    const int64_t count = std::min(piece, last - row);
    layout.ReadRows(group, place, row, count, rows.data());
    builder.Add(row * row_bytes, rows.data(), count * row_bytes);
  }
  return builder;
}

}  // namespace

void StoreRows(ThreadPool& pool,
               const WeightLayout& layout,
               std::byte* storage,
               const std::vector<DenseRows>& pieces) {
  std::vector<DenseRows> tasks, rest;
  for (const DenseRows& piece : pieces) {
    CutAtPanels(piece, RowBytes(layout, *piece.place), &tasks, &rest);
  }
  for (const DenseRows& rows : rest) Store(layout, storage, rows);
  pool.ParallelFor(std::ssize(tasks), [&](int64_t task, int /*thread*/) {
    Store(layout, storage, tasks[static_cast<size_t>(task)]);
  });
}

std::vector<Digest> DigestStored(ThreadPool& pool,
                                 const WeightLayout& layout,
                                 const std::byte* storage,
                                 const std::vector<const TensorPlace*>& places) {
  struct Task {
    size_t tensor;
    int64_t first, last;
    DigestBuilder digest;
  };
  std::vector<Task> tasks;
  for (size_t t = 0; t < places.size(); ++t) {
    const int64_t step = DigestPieceRows(RowBytes(layout, *places[t]), kTaskBytes);
    for (int64_t row = 0; row < places[t]->rows(); row += step) {
      tasks.push_back({t, row, std::min(row + step, places[t]->rows()), {}});
    }
  }
  pool.ParallelFor(std::ssize(tasks), [&](int64_t t, int /*thread*/) {
    Task& task = tasks[static_cast<size_t>(t)];
    task.digest = DigestRows(layout, storage, *places[task.tensor], task.first, task.last);
  });
  std::vector<DigestBuilder> whole(places.size());
  for (const Task& task : tasks) whole[task.tensor].Merge(task.digest);
  std::vector<Digest> digests;
  for (size_t t = 0; t < places.size(); ++t) {
    digests.push_back(whole[t].Finish(places[t]->rows() * RowBytes(layout, *places[t])));
  }
  return digests;
}

namespace {

constexpr int64_t kNanBytes =
    32 << 10;  // scrambled at a time, so that it stays in the first-level cache

class CpuStorageOps final : public StorageOps {
 public:
  CpuStorageOps(const WeightLayout* layout, std::byte* storage, std::shared_ptr<ThreadPool> pool)
      : layout_(layout), storage_(storage), pool_(std::move(pool)) {}

  const WeightLayout& layout() const override { return *layout_; }

  absl::Status StoreRows(const std::vector<DenseRows>& pieces, Location /*location*/) override {
    tandem::StoreRows(*pool_, *layout_, storage_, pieces);
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Digest>> DigestStored(
      const std::vector<const TensorPlace*>& places) override {
    return tandem::DigestStored(*pool_, *layout_, storage_, places);
  }

  absl::Status Scramble(const std::vector<const TensorPlace*>& places) override {
    // One task per group, as fused tensors of a group may share a panel of packed rows.
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
