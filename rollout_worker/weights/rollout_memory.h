// What the rollout holds and may do: states, memory of weights and KV, weight versions. The legal
// orders are in docs/explanation/weights.md; every other one is FAILED_PRECONDITION and changes
// nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "rollout_worker/generation/kv_cache.h"
#include "rollout_worker/generation/model_runner.h"
#include "rollout_worker/weights/rollout_state.h"
#include "rollout_worker/weights/weight_storage.h"
#include "rollout_worker/weights/weight_updates.h"

namespace tandem {

// What to give back.
struct SleepOrder {
  int level = 1;                  // 1: KV dropped, weights to host memory; 2: both dropped
  std::vector<std::string> tags;  // instead of a level: "weights" and/or "kv_cache", dropped
  bool drain_only = false;        // keep all memory; only close the gate
  bool abort_running = false;     // what runs is aborted, not waited for
};
// InvalidArgument: unknown level or tag.
absl::Status CheckSleepOrder(const SleepOrder& order);

// Not thread-safe: the engine thread's. Everything passed in must outlive it.
class Lifecycle {
 public:
  Lifecycle(WeightStorage* weights, KvCache* kv, ModelRunner* runner, WeightReceiver* receiver);

  RolloutState state() const { return machine_.state(); }
  int64_t version() const { return receiver_->core().version(); }  // -1: no complete weights
  const WeightReceiver& receiver() const { return *receiver_; }
  bool updating() const { return state() == RolloutState::kUpdating; }

  // Takes all memory, weights still undefined. A worker that starts without it takes it by Wake.
  absl::Status Start();
  // Reads the weights of an HF checkpoint as version 0.
  absl::Status LoadCheckpoint(const std::string& model_dir, const ModelSpec& spec);

  // OK if a request for `version` (-1: any) may run now.
  absl::Status AdmitRequest(int64_t version);
  // Closes the gate if it is open. The calls below but Apply, Commit and Abort want it closed and
  // nothing running.
  absl::Status Drain(bool running);
  // Both return the bytes of device memory that were given back or taken. InvalidArgument: unknown
  // level or tag. Internal: the system still holds pages of what was given back.
  absl::StatusOr<int64_t> Sleep(const SleepOrder& order);
  absl::StatusOr<int64_t> Wake(const std::vector<std::string>& tags);

  absl::Status BeginUpdate(const UpdateOpening& opening);
  absl::Status ApplyBucket(int64_t version,
                           int64_t generation,
                           int slot,
                           const std::vector<BucketEntry>& entries);
  absl::Status CommitUpdate(int64_t version,
                            int64_t generation,
                            const std::vector<Digest>& digests);
  // Of `version` and `generation`; of any if `version` is negative. Does nothing when it is not
  // open.
  absl::Status AbortUpdate(int64_t version, int64_t generation);
  // Ends the update of a trainer that died, and closes the slots that it left open. To be called
  // now and then while updating, or while receiver().holds_slots().
  absl::Status PollPeer();

  // Digests of the weights, in the layout's order. FailedPrecondition: there are none, or not here.
  absl::StatusOr<std::vector<Digest>> Digests() const;
  absl::StatusOr<std::string> ReadTensor(const std::string& name, int64_t row, int64_t rows) const;
  // Whether the weights are `version` and still those that were accepted, their padding zero and
  // the rope tables as they were made: all that is read besides tokens and KV. DataLoss names what
  // differs first; FailedPrecondition: another version, or none that is here.
  absl::Status Verify(int64_t version) const;

 private:
  RolloutFacts Facts() const;
  int64_t DeviceBytes() const;
  absl::Status CheckReleased() const;
  absl::Status CheckReadable() const;
  absl::StatusOr<int64_t> GiveBack(const SleepOrder& order);
  // An order that failed after its drain opens the gate again, if memory still allows.
  absl::Status Reopen(const absl::Status& failure);
  // After a receiver call that may have ended the update: brings the state in line with it.
  absl::Status Settle(bool applied_before);

  WeightStorage* const weights_;
  KvCache* const kv_;
  ModelRunner* const runner_;
  WeightReceiver* const receiver_;
  RolloutStateMachine machine_;
};

}  // namespace tandem
