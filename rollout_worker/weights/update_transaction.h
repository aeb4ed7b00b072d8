// The rollout's side of the weight transaction, without transport: pure logic over a storage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/weights/digest.h"
#include "common/weights/layout.h"
#include "common/weights/manifest.h"
#include "common/weights/storage_ops.h"

namespace tandem {

inline constexpr int64_t kNoVersion = -1;

// The rows of a tensor that have arrived.
class RowCoverage {
 public:
  // Marks [row, row + rows). False, and nothing is marked, if one of them was marked before.
  bool Add(int64_t row, int64_t rows) {
    auto next = spans_.lower_bound(row);
    if (next != spans_.end() && next->first < row + rows) return false;
    if (next != spans_.begin()) {
      const auto before = std::prev(next);
      if (before->second > row) return false;
      if (before->second == row) {
        before->second = row + rows;
        covered_ += rows;
        return true;
      }
    }
    spans_[row] = row + rows;
    covered_ += rows;
    return true;
  }
  int64_t covered() const { return covered_; }

 private:
  std::map<int64_t, int64_t> spans_;  // first row → one past the last
  int64_t covered_ = 0;
};

// The memory that a bucket's entries refer to.
struct FilledSlot {
  const std::byte* data = nullptr;
  int64_t bytes = 0;
  Location location = Location::kDevice;  // SlotMemory::location()
};

// Not thread-safe: the engine thread calls it. A version is visible only between a successful
// Commit (or AdoptVersion) and the first applied byte of the next update.
class UpdateTransaction {
 public:
  // The storage must be mapped, its padding zeroed once, whenever Begin, Apply, Commit,
  // AdoptVersion, Digests or Verify is called. Errors of its device are returned unchanged.
  explicit UpdateTransaction(std::unique_ptr<StorageOps> storage)
      : storage_(std::move(storage)), layout_(&storage_->layout()) {}

  // Opens an update. InvalidArgument: MatchManifest's findings. FailedPrecondition: an update is
  // open (Abort it first), or this one has adapters alone and their base is not held. Changes
  // nothing on failure.
  absl::Status Begin(UpdateId id,
                     const Manifest& manifest,
                     UpdateScope scope = UpdateScope::kWhole);
  // Writes the entries of one filled slot. Aborted: not the open update. InvalidArgument: an entry
  // outside its tensor or the slot, misaligned, or rows that arrived before. Checks all entries
  // before the first byte is written.
  absl::Status Apply(UpdateId id, const FilledSlot& slot, const std::vector<BucketEntry>& entries);
  // Makes the version visible if every row has arrived and every tensor, re-read from storage, has
  // its digest (manifest order). An update of adapters also names the digests of their base in the
  // layout's order: the base, re-read as well, must still have them. DataLoss names the first
  // tensor that differs, InvalidArgument the first one that is short. Any failure except Aborted
  // (not the open update) ends the update as Abort does.
  absl::Status Commit(UpdateId id, const std::vector<Digest>& digests);
  // Fills every tensor of the open update with NaN (0xff bytes; padding stays zero), so that rows
  // which do not arrive cannot look plausible. Counts as applied: the old version is lost.
  // FailedPrecondition: no update is open.
  absl::Status Scramble();
  // Ends the open update, if any. The old version stays only if no byte was applied.
  void Abort();

  bool updating() const { return open_ != nullptr; }
  bool applied() const;     // bytes of the open update have been written
  int64_t version() const;  // kNoVersion: no complete weights
  UpdateId open() const;    // {kNoVersion, -1} if no update is open

  // The storage was filled from a checkpoint. Drops an open update. A version whose storage cannot
  // be digested is not adopted, and no version is left.
  absl::Status AdoptVersion(int64_t version);
  // The storage has lost its contents. Drops an open update.
  void DropVersion();
  // Digests of the storage, re-read now, in the layout's order.
  absl::StatusOr<std::vector<Digest>> Digests() const;
  StorageOps& storage() const { return *storage_; }
  // Whether the storage still holds the weights accepted by Commit or AdoptVersion. DataLoss names
  // the first tensor that differs. Needs a visible version.
  absl::Status Verify() const;

 private:
  struct Update;
  absl::Status CheckEntry(const BucketEntry& entry, int64_t slot_bytes) const;
  absl::Status CheckOpen(UpdateId id) const;
  absl::Status CheckRows() const;
  absl::Status CheckDigests(const std::vector<Digest>& digests) const;
  absl::Status CheckBase(const std::vector<Digest>& digests) const;
  // The number of base tensors that the open update does not change.
  size_t kept_tensors() const;

  const std::unique_ptr<StorageOps> storage_;
  const WeightLayout* const layout_;
  int64_t version_ = kNoVersion;
  std::vector<Digest>
      accepted_;  // digests of version_ in the layout's order; empty if there is none
  struct UpdateDeleter {
    void operator()(Update* update) const;
  };
  std::unique_ptr<Update, UpdateDeleter> open_;
};

}  // namespace tandem
