// Brings every rollout to a weight version: wakes its weights, publishes, checks, and wakes its KV
// cache.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "controller/rollouts/fan_out.h"
#include "controller/rollouts/weight_check_files.h"
#include "controller/store/run_store.h"
#include "controller/workers/rollout_calls.h"
#include "controller/workers/sync_routes.h"
#include "controller/workers/worker_pool.h"

namespace tandem {

// When a weight sync is followed by a check. kEvery: as kFirst, and at versions that `every`
// divides.
struct CheckPolicy {
  enum class When { kOff, kFirst, kEvery, kAlways };
  When when = When::kFirst;
  int64_t every = 1;
};
// When rollouts fill their weights with NaN before a sync: never, at an incarnation's first,
// always.
enum class ScrambleMode { kOff, kFirst, kAlways };
// What all trainers report of one collective call, by rank. A sync or check has one for every
// rollout of the trainer that works with most of them.
using RoundReports = std::vector<PhaseReport>;

struct WeightSyncResult {
  std::vector<int> ranks;            // rollouts that received the version
  std::map<int, SyncReply> sent;     // what each of them was sent, by its rank
  std::vector<RoundReports> rounds;  // of the trainers
  std::map<int, PhaseReport> wakes;  // of the rollouts in `ranks`
  // What crossed connections: out of the trainers, into the rollouts, and out of them to others.
  int64_t sent_bytes = 0;
  int64_t received_bytes = 0;
  int64_t forwarded_bytes = 0;
  double changed_share = 0;
  std::string digest;                // of what the first sender sent
  std::string checked;               // a line about the weight check, "" if there was none
  std::vector<RoundReports> checks;  // of the trainers; empty if there was none
};

// What was found on each rollout that was checked, by its rank.
using WeightChecks = std::map<int, WeightCheckResult>;

// Polled while calls to workers are in flight; once it returns true, they end with Cancelled.
// Empty: never.
using Interrupted = std::function<bool()>;

// Knows which incarnation of each rollout holds which version. Not thread-safe.
class WeightSync {
 public:
  // `routes`: of the placement, for all rollouts.
  WeightSync(WorkerPool& pool,
             SyncRoutes routes,
             std::unique_ptr<WeightCheckFiles> check_files,
             CheckPolicy check,
             ScrambleMode scramble = ScrambleMode::kOff,
             OverTcp over_tcp = {},
             std::unique_ptr<FanOut> fan_out = MakeStar())
      : pool_(pool),
        routes_(std::move(routes)),
        check_files_(std::move(check_files)),
        check_(check),
        scramble_(scramble),
        over_tcp_(std::move(over_tcp)),
        fan_out_(std::move(fan_out)) {}

  // What checks compare with.
  const WeightCheckFiles& check_files() const { return *check_files_; }

  // Ends updates that trainers of an older generation left open. Call only while no trainer syncs.
  absl::Status EndStaleUpdates();

  // Publishes `version` to all rollouts that do not hold it. A collective of all trainers.
  // With kFirst an incarnation's first weights, and the first after Forget(), are checked.
  // `reference_dir`: the directory that the check compares with, as WeightCheckFiles has it ("":
  // the trainers' own weights). Peer failures: Recovery decides; DataLoss: a digest or the check
  // differs, the message names worker and tensor; Cancelled: interrupted, the rollouts were asked
  // to abort their updates. Repeating the call is safe after any failure. If a check follows,
  // `before_check` is called before it with the result so far.
  absl::StatusOr<WeightSyncResult> Sync(
      int64_t version,
      const std::string& reference_dir,
      const Interrupted& interrupted = {},
      const std::function<void(const WeightSyncResult&)>& before_check = {});

  // Wakes the KV caches of the rollouts that the last Sync sent weights to, which then serve. By
  // rank.
  absl::StatusOr<std::map<int, PhaseReport>> Wake(const Interrupted& interrupted = {});

  // Compares the rollouts' weights with those of `reference_dir`; Verdict evaluates the results. An
  // error means that nothing was checked: a worker did not answer, or the directory has no weights
  // to compare with.
  absl::StatusOr<WeightChecks> Check(const std::string& reference_dir);

  // Ranks whose rollout is not registered or does not hold `version`.
  std::vector<int> Behind(int64_t version);
  // How many times since the last call a rollout was sent a version that this rank had received
  // already, as its process was lost.
  int64_t TakeResendCount() { return std::exchange(resent_, 0); }
  // What rollouts were sent since the last call, in order of time and rank.
  std::vector<SyncRecord> TakeSyncs() { return std::exchange(syncs_, {}); }
  bool Complete(int64_t version) { return Behind(version).empty(); }
  // Forgets what the rollouts hold. For trainers that were reset to a checkpoint.
  void Forget();
  // The same for rollouts that were lost.
  void Forget(const std::vector<int>& ranks);

 private:
  struct Held {
    int64_t incarnation = 0;
    int64_t version = -1;
  };

  using Targets = std::map<int, std::shared_ptr<RolloutClient>>;  // by rank

  bool CheckDue(int64_t version, const Targets& targets) const;
  struct Checked {
    WeightChecks results;
    std::vector<RoundReports> rounds;
  };
  // Of the rollouts of `ranks`.
  absl::StatusOr<Checked> CheckOn(const std::vector<int>& ranks,
                                  const std::string& reference_dir,
                                  const Interrupted& interrupted = {});
  // Sends `version` to `targets`, round by round, and once more to those that did not accept it,
  // such as those behind a rollout of a chain that failed, and those to whom a digest differed.
  // Fills sent, rounds, changed_share, digest and the bytes.
  absl::Status Send(int64_t version,
                    const Targets& targets,
                    const Interrupted& interrupted,
                    WeightSyncResult* result);
  // Why rollouts of a chain do not hold the version, by rank.
  using Missed = std::map<int, absl::Status>;
  absl::StatusOr<Missed> SendRounds(int64_t version,
                                    const std::vector<int>& receivers,
                                    const Targets& targets,
                                    const Interrupted& interrupted,
                                    WeightSyncResult* result);
  // To the rollouts of one round; the trainers' replies, by rank.
  absl::StatusOr<std::vector<SyncReply>> SendRound(int64_t version,
                                                   const SyncRound& round,
                                                   const Targets& targets,
                                                   const Interrupted& interrupted);
  // Names the rollout, and counts it as lost if it did not answer.
  absl::Status Blame(int trainer, int rollout, const absl::Status& status);
  SyncTarget TargetOf(const SyncRoute& route, const Targets& targets) const;
  SyncCall CallFor(int trainer,
                   int64_t version,
                   const SyncRound& round,
                   const Targets& targets) const;
  void NoteSyncs(int64_t version, const WeightSyncResult& result);
  void AbortUpdates(const std::vector<int>& ranks);

  WorkerPool& pool_;
  const SyncRoutes routes_;
  const std::unique_ptr<WeightCheckFiles> check_files_;
  const CheckPolicy check_;
  const ScrambleMode scramble_;
  const OverTcp over_tcp_;
  const std::unique_ptr<FanOut> fan_out_;
  // All maps are by the rollout's rank. An incarnation tells one process of a rank from the next.
  std::map<int, int64_t> checked_incarnation_;    // of the last check
  std::map<int, int64_t> synced_incarnation_;     // of the last sync: its process has had weights
  std::map<int, Held> synced_not_awake_;          // between Sync and Wake
  std::map<int, Held> serving_;                   // since Wake
  std::map<int, int64_t> newest_served_version_;  // of any process of the rank
  int64_t resent_ = 0;
  std::vector<SyncRecord> syncs_;
};

// DataLoss: names the first rollout whose weights differ, or that checked fewer tensors than there
// are, and its first difference. `reference` describes what was compared with
// (WeightCheckFiles::Describe).
absl::Status Verdict(const WeightChecks& results, const std::string& reference);
// The same for one rollout.
absl::Status VerdictOn(int rank, const WeightCheckResult& result, const std::string& reference);
// "rollout 1, version 4: 272 of 272 tensors checked, 0 missing, ..."
std::string CheckText(int rank, const WeightCheckResult& result);

}  // namespace tandem
