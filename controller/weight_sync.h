// Brings every rollout to a weight version: wake weights, publish, check; then wake the KV pool.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "controller/clients/worker_pool.h"

namespace tandem {

enum class CheckMode { kOff, kFirst, kAlways };

struct PublishResult {
  std::vector<int> ranks;            // that were brought to the version
  std::vector<SyncResult> trainers;  // by rank
  std::vector<PhaseReport> wakes;    // of the rollouts in `ranks`
  double changed_share = 0;
  std::string digest;   // of rank 0's publication, "" if it published nothing
  std::string checked;  // a line about the weight check, "" if there was none
};

// Knows which incarnation of each rollout holds which version. Not thread-safe.
class WeightSync {
 public:
  WeightSync(WorkerPool& pool, CheckMode check) : pool_(pool), check_(check) {}

  // Ends updates that trainers of an older generation left open. Call only while no trainer syncs.
  absl::Status EndStaleUpdates();

  // Publishes `version` to all rollouts that do not hold it. A collective of all trainers.
  // With CheckMode::kFirst an incarnation's first weights, and the first after Forget(), are
  // checked. `hf_oracle`: HF checkpoint that the check compares with ("" = the trainers' masters).
  // Peer failures: Recovery decides; DataLoss: a digest or the check differs, the message names
  // worker and tensor. Repeating the call is safe after any failure.
  absl::StatusOr<PublishResult> Publish(int64_t version, const std::string& hf_oracle);

  // Brings back the KV pools of the rollouts that Publish went to: they serve from now on. By rank.
  absl::StatusOr<std::map<int, PhaseReport>> Wake();

  // Compares what the rollouts hold with the trainers or an HF checkpoint: one result per rank.
  absl::StatusOr<std::vector<WeightCheckResult>> CheckEach(const std::string& hf_checkpoint);
  // The same; DataLoss naming the first worker and tensor that differ.
  absl::StatusOr<std::vector<WeightCheckResult>> Check(const std::string& hf_checkpoint);

  // Whether every rank's present incarnation holds `version`.
  bool Complete(int64_t version);
  // Forgets what the rollouts hold: after the trainers went back to a checkpoint.
  void Forget();
  // These rollouts were lost.
  void Forget(const std::vector<int>& ranks);

 private:
  struct Held {
    int64_t incarnation = 0;
    int64_t version = -1;
  };

  std::vector<int> Behind(int64_t version);
  bool CheckDue(const std::map<int, std::shared_ptr<RolloutClient>>& targets) const;
  absl::Status OnRollouts(const std::vector<int>& ranks,
                          const std::function<absl::Status(RolloutClient&)>& call);

  WorkerPool& pool_;
  const CheckMode check_;
  std::map<int, int64_t> checked_;  // CheckMode::kFirst: rank → incarnation
  std::map<int, Held> held_;        // by rank
  std::map<int, Held> pending_;     // published, not awake yet
};

}  // namespace tandem
