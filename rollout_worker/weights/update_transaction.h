// The rollout's side of a weight update, without its transport: pure logic over a storage.
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
  // Marks [row, row + rows). Returns false, and marks none of them, if one was marked before.
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
  Location location = Location::kDevice;  // ConsumerSlots::location()
};

// Not thread-safe: called by the engine thread. A version is visible from a successful Commit or
// AdoptVersion until the first byte of the next update is applied.
class UpdateTransaction {
 public:
  // The storage must be mapped, with its padding zeroed once, whenever Begin, Apply, Commit,
  // AdoptVersion, Digests or Verify is called. Errors of its device are returned unchanged.
  explicit UpdateTransaction(std::unique_ptr<StorageOps> storage)
      : storage_(std::move(storage)), layout_(&storage_->layout()) {}

  // Opens an update. InvalidArgument: MatchManifest's findings, or a negative version.
  // FailedPrecondition: an update is open (Abort it first), or the update consists of adapters and
  // the rollout does not hold their base. Changes nothing on failure.
  absl::Status Begin(UpdateId id,
                     const Manifest& manifest,
                     UpdateScope scope = UpdateScope::kWhole);
  // Writes the entries of one filled slot. Checks all entries before it writes the first byte.
  // Aborted: `id` is not the open update. InvalidArgument: an entry outside its tensor or the slot,
  // misaligned, or with rows that arrived before.
  absl::Status Apply(UpdateId id, const FilledSlot& slot, const std::vector<BucketEntry>& entries);
  // Makes the version visible if every row has arrived and every tensor, re-read from storage, has
  // its digest (in manifest order). For an update of adapters, `digests` continues with those of
  // their base, in the layout's order; the base is re-read too and must still match them. DataLoss
  // names the first tensor that differs, InvalidArgument the first one with missing rows. Any
  // failure except Aborted (`id` is not the open update) ends the update as Abort does.
  absl::Status Commit(UpdateId id, const std::vector<Digest>& digests);
  // Fills every tensor of the open update with NaN (0xff bytes; padding stays zero), so that rows
  // which do not arrive cannot look plausible. The update then counts as applied: the old version
  // is lost. FailedPrecondition: no update is open.
  absl::Status Scramble();
  // Ends the open update, if there is one. The old version stays visible only if no byte was
  // applied.
  void Abort();

  bool updating() const { return open_ != nullptr; }
  bool applied() const;     // whether bytes of the open update have been written
  int64_t version() const;  // kNoVersion: no complete weights
  UpdateId open() const;    // {kNoVersion, -1} if no update is open

  // Makes `version`, with which the caller has filled the storage from a checkpoint, visible. Drops
  // an open update. If the storage cannot be digested, no version is visible.
  absl::Status AdoptVersion(int64_t version);
  // Called when the storage has lost its contents. Drops an open update.
  void DropVersion();
  // Digests of the storage, re-read by this call, in the layout's order.
  absl::StatusOr<std::vector<Digest>> Digests() const;
  StorageOps& storage() const { return *storage_; }
  // Checks that the storage still holds the weights accepted by Commit or AdoptVersion. DataLoss
  // names the first tensor that differs. Requires a visible version.
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
  // Digests of version_ in the layout's order; empty if there is none.
  std::vector<Digest> accepted_;
  struct UpdateDeleter {
    void operator()(Update* update) const;
  };
  std::unique_ptr<Update, UpdateDeleter> open_;
};

}  // namespace tandem
