// Which rows of a tensor have come.
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

// The rollout's side of the weight transaction, without transport: pure logic over a storage.
inline constexpr int64_t kNoVersion = -1;

// What a bucket's entries lie in.
struct FilledSlot {
  const std::byte* data = nullptr;
  int64_t bytes = 0;
  Location location = Location::kDevice;  // SlotMemory::location()
};

// Not thread-safe: the engine thread calls it. A version is visible only between a successful
// Commit (or AdoptVersion) and the first applied byte of the next update.
class UpdateReceiver {
 public:
  // The storage must be mapped, its padding zeroed once, whenever Begin, Apply, Commit,
  // AdoptVersion of a version, Digests or Verify is called. Errors of its device come back as they
  // are.
  explicit UpdateReceiver(std::unique_ptr<StorageOps> storage)
      : storage_(std::move(storage)), layout_(&storage_->layout()) {}

  // Opens `version`. InvalidArgument: MatchManifest's findings. FailedPrecondition: an update is
  // open (Abort it first), or one of adapters has no base here. Leaves everything as it was on
  // failure.
  absl::Status Begin(int64_t version,
                     int64_t generation,
                     const Manifest& manifest,
                     UpdateScope scope = UpdateScope::kWhole);
  // Writes the entries of one filled slot. Aborted: not the open version or
  // generation. InvalidArgument: an entry outside its tensor or the slot, misaligned, or rows that
  // came before. Checks all entries before the first byte is written.
  absl::Status Apply(int64_t version,
                     int64_t generation,
                     const FilledSlot& slot,
                     const std::vector<BucketEntry>& entries);
  // Makes `version` visible if every row has come and every tensor, re-read from storage, has its
  // digest (manifest order). An update of adapters also names the digests of the base that it
  // belongs to, in the layout's order: the base, re-read as well, must still have the same digests.
  // DataLoss names the first that differs, InvalidArgument the first that is short. Any failure
  // except Aborted (not the open version or generation) ends the update as Abort does.
  absl::Status Commit(int64_t version, int64_t generation, const std::vector<Digest>& digests);
  // Fills every tensor of the open update with NaN (0xff bytes; padding stays zero), so that what
  // does not come cannot look plausible. Counts as applied: the old version is gone.
  // FailedPrecondition: no update is open.
  absl::Status Scramble();
  // Ends the open update, if any: the old version stays if no byte was applied, else none is left.
  void Abort();

  bool updating() const { return open_ != nullptr; }
  bool applied() const;             // bytes of the open update have been written
  int64_t version() const;          // kNoVersion: no complete weights
  int64_t open_version() const;     // kNoVersion when none is open
  int64_t open_generation() const;  // -1 when none is open

  // The storage was filled by other means (a checkpoint), or lost its contents; an open update is
  // dropped. A version whose storage cannot be digested is not adopted: there is none then.
  absl::Status AdoptVersion(int64_t version);
  void DropVersion();
  // Of what the storage holds, in the layout's order, re-read now.
  absl::StatusOr<std::vector<Digest>> Digests() const;
  StorageOps& storage() const { return *storage_; }
  // Whether the storage still holds what was accepted at Commit or AdoptVersion. DataLoss names the
  // first tensor that differs. Needs a visible version.
  absl::Status Verify() const;

 private:
  struct Update;
  absl::Status CheckEntry(const BucketEntry& entry, int64_t slot_bytes) const;
  absl::Status CheckOpen(int64_t version, int64_t generation) const;
  absl::Status CheckArrived(const std::vector<Digest>& digests) const;
  absl::Status CheckBase(const std::vector<Digest>& digests) const;
  // Tensors of the base that the open update leaves as they are.
  size_t kept_tensors() const;

  const std::unique_ptr<StorageOps> storage_;
  const WeightLayout* const layout_;
  int64_t version_ = kNoVersion;
  std::vector<Digest> accepted_;  // of version_, in the layout's order; empty without one
  struct UpdateDeleter {
    void operator()(Update* update) const;
  };
  std::unique_ptr<Update, UpdateDeleter> open_;
};

}  // namespace tandem
