// Brings every rollout to a weight version: wake weights, publish, check; then wake the KV pool.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "controller/workers/rollout_calls.h"
#include "controller/workers/worker_pool.h"

namespace tandem {

// When a sync is followed by a check. kEvery: as kFirst, and at versions that `every` divides.
struct CheckPolicy {
  enum class When { kOff, kFirst, kEvery, kAlways };
  When when = When::kFirst;
  int64_t every = 1;
  struct Lora {
    std::string model_dir;  // the base
    bool merged = true;     // into what rollouts hold
  };
  std::optional<Lora> lora;  // none: all weights are trained
};
// What OracleText calls the trainers' own weights, where all are trained.
inline constexpr char kTrainersOracle[] = "the trainers";
// When rollouts fill their weights with NaN before a sync: never, at an incarnation's first,
// always.
enum class ScrambleMode { kOff, kFirst, kAlways };

struct PublishResult {
  std::vector<int> ranks;            // that were brought to the version
  std::vector<SyncResult> trainers;  // by rank
  std::map<int, PhaseReport> wakes;  // of the rollouts in `ranks`
  double changed_share = 0;
  std::string digest;               // of rank 0's publication, "" if it published nothing
  std::string checked;              // a line about the weight check, "" if there was none
  std::vector<PhaseReport> checks;  // of the trainers, by rank; empty if there was none
};

// Polled while workers work; once true, what waits for them ends with Cancelled. Empty: never.
using Interrupted = std::function<bool()>;

// Knows which incarnation of each rollout holds which version. Not thread-safe.
class WeightSync {
 public:
  WeightSync(WorkerPool& pool, CheckPolicy check, ScrambleMode scramble = ScrambleMode::kOff)
      : pool_(pool), check_(check), scramble_(scramble) {}

  // Ends updates that trainers of an older generation left open. Call only while no trainer syncs.
  absl::Status EndStaleUpdates();

  // Publishes `version` to all rollouts that do not hold it. A collective of all trainers.
  // With kFirst an incarnation's first weights, and the first after Forget(), are checked.
  // `hf_oracle`: directory that the check compares with ("" = the trainers' masters): an HF
  // checkpoint; with adapters also one of ours or an adapter (FindLoraCheckFiles).
  // Peer failures: Recovery decides; DataLoss: a digest or the check differs, the message names
  // worker and tensor; Cancelled: interrupted, the rollouts were asked to abort their updates.
  // Repeating the call is safe after any failure. `before_check` is called with what there is so
  // far, if a check follows.
  absl::StatusOr<PublishResult> Publish(
      int64_t version,
      const std::string& hf_oracle,
      const Interrupted& interrupted = {},
      const std::function<void(const PublishResult&)>& before_check = {});

  // Brings back the KV pools of the rollouts that Publish went to: they serve from now on. By rank.
  absl::StatusOr<std::map<int, PhaseReport>> Wake(const Interrupted& interrupted = {});

  // Compares what the rollouts hold with the trainers or an HF checkpoint: one result per rank,
  // which Verdict judges. An error: a worker did not answer, or the checkpoint cannot be compared
  // with, so nothing is proven.
  absl::StatusOr<std::vector<WeightCheckResult>> Check(const std::string& hf_checkpoint);

  // What a check that is given `hf_oracle` compares with, in words: the files that are read.
  std::string OracleText(const std::string& hf_oracle) const;

  // Ranks whose present incarnation is not there or does not hold `version`.
  std::vector<int> Behind(int64_t version);
  // How many rollouts were sent a version that they, or those before them, had held already: they
  // lost it. Counted since the last call.
  int64_t TakeResendCount() { return std::exchange(resent_, 0); }
  bool Complete(int64_t version) { return Behind(version).empty(); }
  // Forgets what the rollouts hold: after the trainers went back to a checkpoint.
  void Forget();
  // These rollouts were lost.
  void Forget(const std::vector<int>& ranks);

 private:
  struct Held {
    int64_t incarnation = 0;
    int64_t version = -1;
  };

  using Targets = std::map<int, std::shared_ptr<RolloutClient>>;  // by rank

  bool CheckDue(int64_t version, const Targets& targets) const;
  // Of these ranks' rollouts; by rank, nothing for the others.
  absl::StatusOr<std::vector<WeightCheckResult>> CheckOn(const std::vector<int>& ranks,
                                                         const std::string& hf_checkpoint,
                                                         const Interrupted& interrupted = {});
  // Sends `version` to `targets`, once more if a digest differs.
  absl::StatusOr<std::vector<SyncResult>> Send(int64_t version,
                                               const Targets& targets,
                                               const Interrupted& interrupted);
  void AbortUpdates(const std::vector<int>& ranks);

  WorkerPool& pool_;
  const CheckPolicy check_;
  const ScrambleMode scramble_;
  std::map<int, int64_t> checked_;  // rank → incarnation
  std::map<int, int64_t> synced_;   // once at least: rank → incarnation
  std::map<int, Held> held_;        // by rank
  std::map<int, Held> pending_;     // published, not awake yet
  std::map<int, int64_t> sent_;     // rank → newest version that a rollout of it woke with
  int64_t resent_ = 0;
};

// DataLoss naming the first rollout (results are by rank) that does not hold what it should, or
// that answered for fewer tensors than there are, and its first difference. `oracle` is an
// OracleText.
absl::Status Verdict(const std::vector<WeightCheckResult>& results, const std::string& oracle);
// The same of one rollout.
absl::Status VerdictOn(int rank, const WeightCheckResult& result, const std::string& oracle);
// "rollout 1, version 4: 272 of 272 tensors checked, 0 missing, ..."
std::string CheckText(size_t rank, const WeightCheckResult& result);

}  // namespace tandem
