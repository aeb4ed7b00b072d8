// A trainer rank, and its commands and results: plain structs with the meaning of the messages of
// the same names in proto/tandem/v1/trainer.proto.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/backend/backend.h"
#include "common/base/mutex.h"
#include "common/comm/group_hosts.h"
#include "common/device/ledger.h"
#include "common/tcp/tcp_security.h"
#include "common/types/ledger_snapshot.h"
#include "common/types/numerics_choices.h"
#include "common/types/worker_load.h"
#include "trainer_worker/forward_backward/mini_batch.h"
#include "trainer_worker/rank_group.h"
#include "trainer_worker/sample_stream.h"
#include "trainer_worker/shard/changed_weights.h"
#include "trainer_worker/shard/optimizer.h"
#include "trainer_worker/training_session.h"
#include "trainer_worker/weight_sync/chain_update_client.h"
#include "trainer_worker/weight_sync/weight_check.h"
#include "trainer_worker/weight_sync/weight_publisher.h"

namespace tandem {

class TcpListener;

struct ResetCommand {
  int64_t generation = 0;
  int world_size = 1;
  std::string rendezvous;      // path of the group's Unix socket, if it has one host
  std::string checkpoint_dir;  // to load; empty: start from the HF model
  int64_t version = 0;
  int64_t step = 0;                  // training steps that led to that state
  std::vector<GroupMember> members;  // by rank; empty: all are on one host
  std::string group_ticket;          // what the members show each other
};
struct ResetResult {
  int64_t version = 0;
  int64_t parameters = 0;
  int64_t shard_parameters = 0;
  PhaseReport report;
};

struct ForwardBackwardCommand {
  int64_t step = 0;
  int64_t mini_batch = 0;
  int64_t mini_batches = 1;  // of the step
  int64_t version = 0;
  double global_tokens = 0;
  int64_t global_samples = 0;
  bool compare_log_probs = false;
  bool first_update = false;        // see MiniBatchRequest::first_update
  bool log_probs_compared = false;  // see MiniBatchRequest::log_probs_compared
};
struct ForwardBackwardResult {
  MiniBatchReport batch;
  PhaseReport report;
};

struct OptimizerStepResult {
  OptimizerReport step;
  PhaseReport report;
};

struct ComputeLogProbsResult {
  int64_t tokens = 0;            // response tokens
  LogProbComparison comparison;  // of the current policy's log-probs with those of the rollout
  PhaseReport report;
};

struct RolloutTarget {
  std::string address;
  int64_t incarnation = 0;
  bool scramble = false;  // the rollout fills its weights with NaN before an update's first bucket
  bool over_tcp = false;  // see UpdateClient::over_tcp
};

struct SyncCommand {
  int64_t version = 0;
  std::vector<int> target_ranks;
  std::vector<RolloutTarget> targets;  // none, one, or a chain (ChainUpdateClient)
};
struct SyncResult {
  PublishReport publish;
  std::vector<ChainOutcome> outcomes;  // of each rollout that this rank sent to
  double changed_share = 0;
  PhaseReport report;
};

struct CheckCommand {
  std::string rollout_address;
  int64_t rollout_incarnation = 0;  // 0: the incarnation of the last sync
  std::string hf_checkpoint;        // to compare with; empty: the trainers' own weights
};

struct CheckResult {
  WeightCheckReport weights;
  PhaseReport report;
};

struct SaveCommand {
  std::string directory;
  int64_t version = 0;
};
struct SaveResult {
  int64_t bytes = 0;
  PhaseReport report;
};

// The current activity and weight version of a trainer.
struct TrainerStatus {
  std::string phase = "starting";
  std::string last_action;
  int64_t version = -1;  // -1: no weights are loaded
  CollectiveNote last_collective;
};

// Options of a trainer rank.
struct TrainerOptions {
  SessionOptions session;
  DType dtype = DType::kBFloat16;
  int rank = 0;
  // The device's backend; null: compute on the host with `threads`.
  std::shared_ptr<Backend> backend;
  int threads = 1;
  std::vector<int> cores;  // of the compute threads, the engine thread's first; empty: not pinned
  std::string transport = "auto";  // weight_sync.transport
  PolicyLossOptions loss;
  std::string loss_agg_mode = "token-mean";
  double loss_scale_factor = 1;  // of seq-mean-token-sum-norm
  uint64_t seed = 1;             // trainer.seed
  bool recompute_old_log_probs = false;
  bool tolerate_mismatch = false;  // see MiniBatchRequest::tolerate_mismatch
  bool sum_pi_squared = false;     // sent to the controller with the current policy's log-probs
  bool keep_reference = false;
  bool save_optimizer = true;
  bool save_hf_model = true;
  std::string adapter_path;  // model.lora.adapter_path
  absl::Duration rpc_timeout = absl::Seconds(600);
  bool single_channel = false;  // cluster.nccl_single_channel
  // Where ranks of other hosts connect, with the security of connections to them; outlives the
  // trainer. Null: all ranks are on one host.
  TcpListener* data_listener = nullptr;
  TcpSecurity data_security;
};

// What a command on a session is called.
struct CommandName {
  // One word, a string literal: of the status, of the report, and the fault point.
  const char* phase = "";
  std::string action;              // of the status and the log
  std::optional<int64_t> version;  // the weight version that the command needs
};

// The connection to a rollout that it publishes to, for a sync or a check.
struct RolloutLink {
  std::unique_ptr<UpdateClient> updates;
  WeightReader* reader = nullptr;  // points into `updates`
};
using RolloutConnector = std::function<absl::StatusOr<RolloutLink>(const RolloutTarget& target)>;

// A trainer rank: runs the commands of trainer.proto on a training session. Lifecycle: Create →
// Reset → commands → Reset... Commands are for one engine thread; status, ledger, numerics
// and Interrupt are for any. After a failed collective, only Reset can recover.
class Trainer {
 public:
  // FailedPrecondition: the machine lacks a feature that the ops need. On a GPU, Create reads the
  // model's config (errors as LoadModelSpec) and chooses how matrix products are computed.
  // `samples` outlives the trainer.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const TrainerOptions& options,
                                                         SampleStream* samples,
                                                         RolloutConnector connect);

  // Must be called once by the engine thread, before the first Reset, if another thread created the
  // trainer.
  absl::Status UseOnThisThread() { return backend_->device()->UseOnThisThread(); }

  // Aborted: the trainer's group has a newer generation; the trainer is unchanged.
  absl::StatusOr<ResetResult> Reset(const ResetCommand& command);
  // Aborted: the group was formed under another generation. OK if there is no session: the command
  // that follows reports that Reset is missing.
  absl::Status CheckGeneration(int64_t generation) const;
  // Runs `work` as a command: shows its name in the status and the log, and reports its time and
  // peak memory. A call of the service that needs no more than the session runs its work here.
  // FailedPrecondition: there is no session, or it is at another version.
  absl::StatusOr<PhaseReport> Run(const CommandName& name,
                                  const std::function<absl::Status(TrainingSession&)>& work);
  absl::StatusOr<ForwardBackwardResult> ForwardBackward(const ForwardBackwardCommand& command);
  absl::StatusOr<OptimizerStepResult> OptimizerStep(int64_t version);
  absl::StatusOr<ComputeLogProbsResult> ComputeLogProbs(int64_t step, LogProbPolicy policy);
  absl::StatusOr<SyncResult> SyncWeights(const SyncCommand& command);
  absl::StatusOr<CheckResult> CheckWeights(const CheckCommand& command);
  absl::StatusOr<SaveResult> SaveState(const SaveCommand& command);

  // Called when a Reset to `generation` arrives: collectives of older generations that hang must
  // fail.
  void Interrupt(int64_t generation) {
    group_.Interrupt(generation, "the controller forms a new group");
  }
  void InterruptAll() { group_.Interrupt(INT64_MAX, "this trainer is shutting down"); }

  TrainerStatus status() const;
  Ledger& ledger() { return ledger_; }
  // Its choices are those that the device's backend made when the trainer was created.
  WorkerNumerics numerics() const {
    return {forward_->numerics_class(), forward_->kernel_set(), backend_->numerics_choices()};
  }
  // May be called only once the engine thread has stopped.
  const OpCounts& op_counts() const { return forward_->counts(); }

 private:
  class Phase;

  Trainer(const TrainerOptions& options, SampleStream* samples, RolloutConnector connect)
      : options_(options),
        samples_(samples),
        connect_(std::move(connect)),
        backend_(options.backend != nullptr ? options.backend : OnTheHost(options)),
        group_(backend_.get()) {}
  static std::shared_ptr<Backend> OnTheHost(const TrainerOptions& options);
  absl::Status StartSession(const ResetCommand& command);
  absl::Status MakeSession();
  absl::StatusOr<TrainingSession*> Session();
  absl::StatusOr<TrainingSession*> SessionAt(int64_t version);
  // Sends the log-probs of a step's or a probe's samples to the controller, which may need them for
  // the loss, the probe or a batch that it saves.
  absl::Status SendScores(int64_t step,
                          LogProbPolicy policy,
                          const LogProbsBySample& log_probs,
                          const ScoreExtras& extras);
  // Sends the log-probs for the batch that the controller saves when it ends the run.
  void SendMismatchedLogProbs(int64_t step, const LogProbsBySample& log_probs);
  MiniBatchRequest MakeRequest(const ForwardBackwardCommand& command) const;
  void SetVersion(int64_t version);
  void UpdateWorkspace();

  const TrainerOptions options_;
  SampleStream* const samples_;
  const RolloutConnector connect_;
  Ledger ledger_;
  const std::shared_ptr<Backend> backend_;  // must outlive the objects that it made
  std::unique_ptr<ForwardOps> forward_;
  std::unique_ptr<BackwardOps> backward_;
  std::unique_ptr<ShardOps> shard_ops_;
  WeightTransport* transport_ = nullptr;  // owned by the backend
  RankGroup group_;
  std::unique_ptr<TrainingSession> session_;  // null until Reset succeeds
  ResetResult reset_result_;
  OptimizerStepResult last_step_;
  ChangedWeightFraction changed_;
  int64_t trained_step_ = -1, trained_ = 0;  // mini-batches trained on in that step since Reset
  int64_t step_version_ = 0;                 // weight version at the step's first mini-batch
  bool step_complete_ = false;               // the last mini-batch of its step has been trained on
  int64_t rollout_incarnation_ = 0;
  int64_t workspace_bytes_ = 0;

  mutable Mutex status_mutex_;
  TrainerStatus status_ ABSL_GUARDED_BY(status_mutex_);
};

}  // namespace tandem
