// The rollout's end of the pair: the update receiver, the socket that slots arrive on, their
// mapping. Speaks plain structs; rollout_service converts with common/wire/update_codec.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/weights/pair_socket.h"
#include "common/weights/update_receiver.h"

namespace tandem {

struct WeightReceiverOptions {
  std::string pair_socket;  // path of the Unix socket to make, at most 107 bytes
  absl::Duration slots_timeout = absl::Seconds(30);  // for the trainer to pass its slots
};

struct UpdateOpening {
  int64_t version = 0;
  int64_t generation = 0;
  int64_t slot_bytes = 0;
  int slots = 0;
  Manifest manifest;
};

// Not thread-safe: the engine thread calls it. State machine and memory are the caller's: handle
// kBegin, kApply, kCommit and kAbort (common/weights/rollout_state.h) around these calls, reading
// core().applied() and core().version() afterwards; storage must be mapped.
class WeightReceiver {
 public:
  // `layout` and `storage` (layout->total_bytes()) outlive it. `pool`: the process's.
  static absl::StatusOr<std::unique_ptr<WeightReceiver>> Create(
      const WeightLayout* layout,
      std::byte* storage,
      std::shared_ptr<ThreadPool> pool,
      const WeightReceiverOptions& options);

  const std::string& pair_socket() const { return listener_->path(); }
  const UpdateReceiver& core() const { return core_; }
  // Loaded from a checkpoint, or dropped (kNoVersion).
  void AdoptVersion(int64_t version);

  // Opens an update. One that is open is given up first if this one's generation is larger (its
  // trainer was replaced); Aborted if not. Otherwise as UpdateReceiver::Begin.
  absl::Status Begin(const UpdateOpening& opening);
  // The first Apply takes the slots from the socket. Unavailable: the trainer is gone; the update
  // has ended then. Otherwise as UpdateReceiver::Apply.
  absl::Status Apply(int64_t version,
                     int64_t generation,
                     int slot,
                     const std::vector<BucketEntry>& entries);
  // Ends the update either way and unmaps the slots (except Aborted: not the open version or
  // generation).
  absl::Status Commit(int64_t version, int64_t generation, const std::vector<Digest>& digests);
  // Does nothing if no update is open. `version` < 0 aborts any; another version or generation than
  // the open one is ignored.
  void Abort(int64_t version, int64_t generation);
  // To be called now and then while an update is open: ends it when the trainer has died. OK while
  // all is well; Unavailable once, when it ended the update (InvalidArgument: other slots than
  // announced were passed).
  absl::Status PollPeer();

  // Rows of one tensor, dense. NotFound; InvalidArgument: rows outside, or more than 1 MiB;
  // FailedPrecondition: no complete weights.
  absl::StatusOr<std::string> ReadRows(const std::string& name, int64_t row, int64_t rows) const;

 private:
  WeightReceiver(const WeightLayout* layout,
                 std::byte* storage,
                 std::shared_ptr<ThreadPool> pool,
                 std::unique_ptr<PairListener> listener,
                 const WeightReceiverOptions& options);
  absl::Status TakeSlots(absl::Duration timeout);
  void DropSlots();

  const WeightLayout* const layout_;
  std::byte* const storage_;
  const WeightReceiverOptions options_;
  UpdateReceiver core_;
  std::unique_ptr<PairListener> listener_;
  UpdateOpening opening_;
  ReceivedSlots received_;
};

}  // namespace tandem
