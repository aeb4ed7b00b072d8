// The calls that the controller makes to one trainer worker, the primitives of a training step, and
// their implementation over gRPC.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/rollout_correction/off_policy_metrics.h"
#include "common/types/host_id.h"
#include "common/types/ledger_snapshot.h"
#include "controller/workers/done.h"
#include "controller/workers/trainer_group.h"

namespace tandem {

class CallObserver;

struct RpcSecurity;  // common/net/security/rpc_security.h

// A worker that is ready, and where others of its role meet it.
struct WorkerMember {
  int64_t incarnation = 0;  // 0: none is ready
  HostId host;
  std::string data_address;  // empty where all are on one host

  friend bool operator==(const WorkerMember&, const WorkerMember&) = default;
};

// Forms the group of all ranks and loads state.
struct ResetCall {
  int64_t generation = 0;  // grows with every re-formation
  int world_size = 1;
  std::string rendezvous;             // path of the group's Unix socket, where all are on one host
  std::vector<WorkerMember> members;  // by rank
  std::string group_ticket;           // what ranks of several hosts show each other
  std::string checkpoint_dir;         // empty: load model.path
  int64_t version = 0;                // weight version of that state
};

struct ForwardBackwardCall {
  int64_t step = 0;
  int64_t mini_batch = 0;
  int64_t mini_batches = 1;
  int64_t version = 0;       // expected weight version
  double global_tokens = 0;  // response tokens of the mini-batch, all ranks
  int64_t global_samples = 0;
  bool compare_log_probs = false;
  // No optimizer step yet since the old log-probs: ratios must be exactly 1.
  bool first_update = false;
  bool log_probs_compared = false;  // ComputeLogProbs has compared all of the step's
};

// One token whose log-prob differs between rollout and trainer.
struct ReportedMismatch {
  uint64_t sample_id = 0;
  int64_t position = 0;  // absolute token position in the sample
  int64_t weight_version = 0;
  float rollout = 0;
  float trainer = 0;
};

// A rank's log-probs compared with those of the rollout.
struct ReportedComparison {
  int64_t compared_tokens = 0;
  int64_t identical_tokens = 0;
  double max_abs_difference = 0;
  double sum_abs_difference = 0;
  ProbabilityComparison probabilities;       // of the compared tokens
  std::vector<ReportedMismatch> mismatches;  // the five that differ most
};

struct ForwardBackwardReply {
  std::map<std::string, double> metrics;  // verl's names, reduced over ranks
  int64_t micro_batches = 0;
  ReportedComparison comparison;
  int64_t tokens = 0;
  PhaseReport report;
};

struct LogProbsReply {
  ReportedComparison comparison;  // with kCurrent and kCompared, if the rollout recorded log-probs
  PhaseReport report;
};

struct OptimizerStepReply {
  double grad_norm = 0;
  double learning_rate = 0;
  bool skipped = false;  // the norm was not finite
  PhaseReport report;
};

enum class ScoredPolicy {
  kCurrent,
  kReference,
  kProbe,     // the current policy, on the probe samples of its rollouts
  kCompared,  // the current policy, to compare with the rollout; sent only if log-probs differ
};

struct SyncTarget {
  std::string address;  // of the rollout
  int64_t incarnation = 0;
  bool scramble = false;  // the rollout fills its weights with NaN first, to prove that all arrive
  bool over_tcp = false;  // it shares no memory with the trainer
};

struct SyncCall {
  int64_t version = 0;
  std::vector<int> senders;  // ranks of the trainers that send to a rollout
  // That this trainer sends to: none, where it takes part in the gathers only, one, or a chain, in
  // which each passes the weights on to the next one over TCP.
  std::vector<SyncTarget> targets;
};

struct CheckCall {
  // The rollout that this trainer compares; empty: it takes part in the gathers only.
  std::string rollout_address;
  int64_t rollout_incarnation = 0;
  std::string hf_checkpoint;  // empty: compare with the trainer's masters
};

// How a sync ended for one rollout, and what crossed its connections.
struct SyncOutcome {
  absl::Status status;  // OK: it holds the version
  int64_t received_bytes = 0;
  int64_t forwarded_bytes = 0;  // to the next rollout of a chain
};

struct SyncReply {
  int64_t bytes = 0;
  int64_t buckets = 0;
  int64_t tensors = 0;
  double seconds = 0;
  double changed_share = 0;
  std::string digest;      // of all tensor digests, hex
  int64_t sent_bytes = 0;  // that the trainer sent over TCP
  // Of the rollouts of the call. Those of a chain may have failed although the call is OK.
  std::vector<SyncOutcome> outcomes;
  PhaseReport report;
};

// Numbers of source tensors, by HF name: q, k and v are counted separately, a tied head once.
struct WeightCheckResult {
  int64_t version = -1;  // weight version of the rollout
  int64_t expected = 0;  // tensors that the rollout should hold
  int64_t checked = 0;
  int64_t missing = 0;
  int64_t unexpected = 0;
  int64_t mismatched = 0;
  std::string first_difference;
  std::vector<std::string> differing;  // names, the first few dozen
  PhaseReport report;

  bool ok() const {
    return checked > 0 && checked == expected && missing == 0 && unexpected == 0 && mismatched == 0;
  }
};

struct SaveReply {
  int64_t bytes = 0;
  PhaseReport report;
};

// The calls to one trainer. None waits: each returns at once, and `done` hears of its end, so that
// calls to a thousand ranks need no thousand threads. A call that an implementation does not
// override ends with Unimplemented, so that a fake implements only the calls that its tests make.
// Collective calls must be made on every rank at once. Errors as in trainer.proto; Cancelled:
// CancelAll. Thread-safe.
class TrainerClient {
 public:
  virtual ~TrainerClient() = default;

  virtual void Reset(const ResetCall& /*command*/, StatusDone done) {
    done(Unimplemented("Reset"));
  }
  virtual void ForwardBackward(const ForwardBackwardCall& /*command*/,
                               Done<ForwardBackwardReply> done) {
    done(Unimplemented("ForwardBackward"));
  }
  virtual void OptimizerStep(int64_t /*version*/, Done<OptimizerStepReply> done) {
    done(Unimplemented("OptimizerStep"));
  }
  virtual void ComputeLogProbs(int64_t /*step*/,
                               ScoredPolicy /*policy*/,
                               Done<LogProbsReply> done) {
    done(Unimplemented("ComputeLogProbs"));
  }
  virtual void SyncWeights(const SyncCall& /*command*/, Done<SyncReply> done) {
    done(Unimplemented("SyncWeights"));
  }
  virtual void CheckWeights(const CheckCall& /*command*/, Done<WeightCheckResult> done) {
    done(Unimplemented("CheckWeights"));
  }
  virtual void SaveState(const std::string& /*directory*/,
                         int64_t /*version*/,
                         Done<SaveReply> done) {
    done(Unimplemented("SaveState"));
  }
  virtual void Shutdown(StatusDone done) { done(Unimplemented("Shutdown")); }

  // Ends all calls that are under way with Cancelled.
  virtual void CancelAll() = 0;
  virtual int64_t incarnation() const = 0;

 private:
  static absl::Status Unimplemented(const char* call);
};

// A client over gRPC. `timeout` bounds every call (cluster.rpc_timeout_seconds). Without `group`
// the client is the only one of its group.
absl::StatusOr<std::shared_ptr<TrainerClient>> MakeGrpcTrainerClient(
    const std::string& address,
    int64_t incarnation,
    absl::Duration timeout,
    const RpcSecurity& security,
    std::shared_ptr<CallObserver> observer = nullptr,
    std::shared_ptr<TrainerGroup> group = nullptr);

}  // namespace tandem
