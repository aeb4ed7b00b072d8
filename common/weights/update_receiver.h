// The rollout's side of the weight transaction, without transport: pure logic over a storage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/ops/cpu/thread_pool.h"
#include "common/weights/bucket_plan.h"
#include "common/weights/digest.h"
#include "common/weights/layout.h"
#include "common/weights/manifest.h"

namespace tandem {

inline constexpr int64_t kNoVersion = -1;

// Not thread-safe: the engine thread calls it. A version is visible only between a successful
// Commit (or AdoptVersion) and the first applied byte of the next update.
class UpdateReceiver {
 public:
  // `storage` holds layout->total_bytes() and must be mapped, its padding zeroed once, whenever
  // Begin, Apply, Commit or Digests is called. `pool` re-reads and digests at commit.
  UpdateReceiver(const WeightLayout* layout, std::byte* storage, std::shared_ptr<ThreadPool> pool)
      : layout_(layout), storage_(storage), pool_(std::move(pool)) {}

  // Opens `version`. InvalidArgument: MatchManifest's findings. FailedPrecondition: an update is
  // open (Abort it first). Leaves everything as it was on failure.
  absl::Status Begin(int64_t version, int64_t generation, const Manifest& manifest);
  // Writes the entries of one filled slot of `slot_bytes`. Aborted: not the open version or
  // generation. InvalidArgument: an entry outside its tensor or the slot, misaligned, or rows that
  // came before. Checks all entries before the first byte is written.
  absl::Status Apply(int64_t version,
                     int64_t generation,
                     const std::byte* slot,
                     int64_t slot_bytes,
                     const std::vector<BucketEntry>& entries);
  // Makes `version` visible if every row has come and every tensor, re-read from storage, has its
  // digest (manifest order). DataLoss names the first that differs, InvalidArgument the first that
  // is short. Any failure except Aborted (not the open version or generation) ends the update as
  // Abort does.
  absl::Status Commit(int64_t version, int64_t generation, const std::vector<Digest>& digests);
  // Ends the open update, if any: the old version stays if no byte was applied, else none is left.
  void Abort();

  bool updating() const { return open_ != nullptr; }
  bool applied() const;             // bytes of the open update have been written
  int64_t version() const;          // kNoVersion: no complete weights
  int64_t open_version() const;     // kNoVersion when none is open
  int64_t open_generation() const;  // -1 when none is open

  // The storage was filled by other means (a checkpoint), or lost its contents (kNoVersion; an open
  // update is dropped).
  void AdoptVersion(int64_t version);
  // Of what the storage holds, in the layout's order, re-read now.
  std::vector<Digest> Digests() const;

 private:
  struct Update;
  std::vector<Digest> DigestPlaces(const std::vector<const TensorPlace*>& places) const;
  absl::Status CheckEntry(const BucketEntry& entry, int64_t slot_bytes) const;
  absl::Status CheckOpen(int64_t version, int64_t generation) const;

  const WeightLayout* const layout_;
  std::byte* const storage_;
  const std::shared_ptr<ThreadPool> pool_;
  int64_t version_ = kNoVersion;
  struct UpdateDeleter {
    void operator()(Update* update) const;
  };
  std::unique_ptr<Update, UpdateDeleter> open_;
};

// Re-reads one tensor of a full storage through the inverse layout.
Digest DigestStored(const WeightLayout& layout, const std::byte* storage, const TensorPlace& place);

}  // namespace tandem
