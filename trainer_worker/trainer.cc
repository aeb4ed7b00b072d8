#include "trainer_worker/trainer.h"

#include <algorithm>

#include "common/backend/cpu_backend.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/comm/communicator.h"
#include "common/process/fault_injection.h"

namespace tandem {
namespace {

// Runs before a session allocates device memory, and before the choices are sent to the controller.
absl::Status PrepareModel(const SessionOptions& options, Backend& backend) {
  if (backend.device()->is_host()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const ModelSpec spec, LoadModelSpec(options.model_dir));
  return backend.PrepareModel(spec, std::min(options.vocab_limit, spec.vocab_size),
                              ModelUse::kTraining);
}

// The connections of a sync.
struct SyncLink {
  std::unique_ptr<UpdateClient> updates;
  ChainUpdateClient* chain = nullptr;  // points to `updates`; null: they go to one rollout
};

absl::StatusOr<SyncLink> ConnectTargets(const RolloutConnector& connect,
                                        const std::vector<RolloutTarget>& targets) {
  std::vector<std::unique_ptr<UpdateClient>> rollouts;
  for (const RolloutTarget& target : targets) {
    TANDEM_ASSIGN_OR_RETURN(RolloutLink link, connect(target));
    rollouts.push_back(std::move(link.updates));
  }
  if (rollouts.size() == 1) return SyncLink{.updates = std::move(rollouts.front())};
  auto chain = std::make_unique<ChainUpdateClient>(std::move(rollouts));
  ChainUpdateClient* const made = chain.get();
  return SyncLink{.updates = std::move(chain), .chain = made};
}

// Adapters that are kept separate are sent without the base if every rollout holds a complete
// earlier version. Collective: if any rollout lacks a version, every rank gathers everything.

absl::StatusOr<UpdateScope> ChooseScope(TrainingSession& session, UpdateClient* client) {
  const UpdateScope smallest = session.weights().smallest_update();
  if (smallest == UpdateScope::kWhole) return smallest;
  int64_t lacking = 0;
  if (client != nullptr) {
    const absl::StatusOr<int64_t> held = client->HeldVersion();
    // A rollout that does not answer fails the update that follows.
    lacking = held.ok() && *held >= 0 ? 0 : 1;
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<int64_t> all,
                          Agree(session.communicator(), absl::OkStatus(),
                                "asking for the versions that the rollouts hold", lacking));
  const bool any = std::count(all.begin(), all.end(), 0) != std::ssize(all);
  return any ? UpdateScope::kWhole : smallest;
}

// For a call of one generation to the trainer of `rank`, whose group has another.
absl::Status OtherGeneration(int64_t of_call, int rank, int64_t of_group) {
  constexpr const char* kWhat = "a generation is one start of the trainers as a group";
  if (of_call < of_group) {
    return MakeStatus(absl::StatusCode::kAborted,
                      "trainer {} refuses a call of generation {}, which is over: it is in "
                      "generation {}, the current one ({}). A controller that was replaced, or a "
                      "phase from before a recovery, made the call; nothing is lost",
                      rank, of_call, of_group, kWhat);
  }
  return MakeStatus(absl::StatusCode::kAborted,
                    "trainer {} refuses a call of generation {}, the current one: it is still in "
                    "generation {} ({}) and must be reset first",
                    rank, of_call, of_group, kWhat);
}

// What a scoring pass is called in the status, and its log-probs where they are sent. String
// literals.
struct PolicyNames {
  const char* phase;
  const char* log_probs;
};
PolicyNames NamesOf(LogProbPolicy policy) {
  switch (policy) {
    case LogProbPolicy::kReference:
      return {"reference", "reference"};
    case LogProbPolicy::kProbe:
      return {"probe", "probe"};
    case LogProbPolicy::kCompared:
      return {"compare", "compared"};
    case LogProbPolicy::kCurrent:
      break;
  }
  return {"old_log_prob", "current"};
}

}  // namespace

// The scope of a command: shows its name in the status and the log, measures its time and peak
// memory, and is work that must go on.
class Trainer::Phase {
 public:
  // `phase`: a string literal.
  Phase(Trainer* trainer, const char* phase, const std::string& action)
      : trainer_(trainer), phase_(phase), start_(RealClock().Now()), step_(phase) {
    trainer->ledger_.ResetPeaks();
    {
      const MutexLock lock(trainer->status_mutex_);
      trainer->status_.phase = phase;
      trainer->status_.last_action = action;
    }
    FaultPoint(phase);
  }
  ~Phase() {
    const MutexLock lock(trainer_->status_mutex_);
    trainer_->status_.phase = "idle";
  }
  PhaseReport Report() {
    trainer_->UpdateWorkspace();
    PhaseReport report{phase_, absl::ToDoubleSeconds(RealClock().Now() - start_),
                       trainer_->ledger_.Snapshot()};
    LogInfo("{} took {:.3f} s", trainer_->status().last_action, report.seconds);
    return report;
  }

 private:
  Trainer* trainer_;
  const char* const phase_;
  const Instant start_;
  const WorkStep step_;
};

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(const TrainerOptions& options,
                                                         SampleStream* samples,
                                                         RolloutConnector connect) {
  TANDEM_RETURN_IF_ERROR(CheckPolicyLossOptions(options.loss));
  std::unique_ptr<Trainer> trainer(new Trainer(options, samples, std::move(connect)));
  Backend& backend = *trainer->backend_;
  trainer->ledger_.SetDriverReader([device = backend.device()] { return device->Memory(); });
  TANDEM_ASSIGN_OR_RETURN(trainer->forward_, backend.MakeForwardOps(options.dtype));
  TANDEM_ASSIGN_OR_RETURN(trainer->backward_, backend.MakeBackwardOps(options.dtype));
  TANDEM_RETURN_IF_ERROR(PrepareModel(options.session, backend));
  TANDEM_ASSIGN_OR_RETURN(trainer->shard_ops_, backend.MakeShardOps());
  TANDEM_ASSIGN_OR_RETURN(trainer->transport_, backend.Transport(options.transport));
  return trainer;
}

std::shared_ptr<Backend> Trainer::OnTheHost(const TrainerOptions& options) {
  return MakeCpuBackend(std::make_shared<ThreadPool>(options.threads, options.cores));
}

TrainerStatus Trainer::status() const {
  const MutexLock lock(status_mutex_);
  TrainerStatus now = status_;
  now.last_collective = group_.last_collective();
  return now;
}

void Trainer::SetVersion(int64_t version) {
  SetLogVersion(version);
  const MutexLock lock(status_mutex_);
  status_.version = version;
}

void Trainer::UpdateWorkspace() {
  const int64_t bytes = forward_->workspace_bytes() + backward_->workspace_bytes();
  ledger_.Add("workspace", Location::kDevice, bytes - workspace_bytes_);
  workspace_bytes_ = bytes;
}

absl::StatusOr<TrainingSession*> Trainer::Session() {
  if (session_ == nullptr) {
    return FailedPrecondition("trainer {} has no state; Reset comes first", options_.rank);
  }
  return session_.get();
}

absl::StatusOr<TrainingSession*> Trainer::SessionAt(int64_t version) {
  TANDEM_ASSIGN_OR_RETURN(TrainingSession * session, Session());
  if (status().version != version) {
    return FailedPrecondition("trainer {} is at weight version {}, not {}", options_.rank,
                              status().version, version);
  }
  return session;
}

absl::Status Trainer::CheckGeneration(int64_t generation) const {
  if (session_ == nullptr || group_.generation() == generation) return absl::OkStatus();
  return OtherGeneration(generation, options_.rank, group_.generation());
}

absl::StatusOr<ResetResult> Trainer::Reset(const ResetCommand& command) {
  if (session_ != nullptr && group_.generation() == command.generation) return reset_result_;
  if (group_.generation() > command.generation) {
    return OtherGeneration(command.generation, options_.rank, group_.generation());
  }
  SetLogStep(command.step);
  Phase phase(this, "reset", fmt::format("Reset to generation {}", command.generation));
  const absl::Status started = StartSession(command);
  if (!started.ok()) {
    session_.reset();
    return started;
  }
  SetVersion(command.version);
  reset_result_ = ResetResult{.version = command.version,
                              .parameters = session_->plan().total_elements(),
                              .shard_parameters = session_->shard().elements()};
  LogInfo("rank {} of {} holds {} of {} parameters at version {}", options_.rank,
          command.world_size, reset_result_.shard_parameters, reset_result_.parameters,
          command.version);
  reset_result_.report = phase.Report();
  return reset_result_;
}

MiniBatchRequest Trainer::MakeRequest(const ForwardBackwardCommand& command) const {
  MiniBatchRequest request;
  request.global_tokens = command.global_tokens;
  request.global_samples = static_cast<double>(command.global_samples);
  request.compare_log_probs = command.compare_log_probs;
  request.first_update = command.first_update;
  request.tolerate_mismatch = options_.tolerate_mismatch;
  request.log_probs_compared = command.log_probs_compared;
  request.step = command.step;
  request.version = command.version;
  request.step_version = step_version_;
  request.seed = options_.seed;
  request.loss = options_.loss;
  request.loss_agg_mode = options_.loss_agg_mode;
  request.loss_scale_factor = options_.loss_scale_factor;
  request.recomputed_old_log_probs = options_.recompute_old_log_probs;
  return request;
}

void Trainer::SendMismatchedLogProbs(int64_t step, const LogProbsBySample& log_probs) {
  if (log_probs.empty()) return;
  const absl::Status sent = samples_->PutLogProbs(step, "training", log_probs);
  // A failure here is only logged: the mismatch ends the run in any case.
  if (!sent.ok()) LogWarn("the differing log-probs are not saved: {}", sent.ToString());
}

absl::StatusOr<ForwardBackwardResult> Trainer::ForwardBackward(
    const ForwardBackwardCommand& command) {
  TANDEM_ASSIGN_OR_RETURN(TrainingSession * session, SessionAt(command.version));
  SetLogStep(command.step);
  Phase phase(
      this, "train",
      fmt::format("ForwardBackward of step {}, mini-batch {}", command.step, command.mini_batch));
  if (command.first_update || trained_step_ != command.step) step_version_ = command.version;
  auto samples = samples_->Pull(command.step, command.mini_batch);
  TANDEM_RETURN_IF_ERROR(
      Agree(session->communicator(), samples.status(), "pulling samples").status());
  ForwardBackwardResult result;
  LogProbsBySample differing;
  auto report = session->Train(MakeRequest(command), *samples, &differing);
  SendMismatchedLogProbs(command.step, differing);
  TANDEM_ASSIGN_OR_RETURN(result.batch, std::move(report));
  trained_ = trained_step_ == command.step ? trained_ + 1 : 1;
  trained_step_ = command.step;
  step_complete_ = trained_ >= command.mini_batches;
  LogInfo("{} tokens in {} micro-batches, forward {:.2f} s, backward {:.2f} s{}",
          result.batch.tokens, result.batch.micro_batches, result.batch.forward_seconds,
          result.batch.backward_seconds, result.batch.recompute ? ", layers recomputed" : "");
  result.report = phase.Report();
  return result;
}

absl::StatusOr<OptimizerStepResult> Trainer::OptimizerStep(int64_t version) {
  TANDEM_ASSIGN_OR_RETURN(TrainingSession * session, Session());
  if (version == status().version && !last_step_.report.phase.empty()) return last_step_;
  if (version < 1) {
    return InvalidArgument("OptimizerStep cannot make weight version {}: a step's is 1 or more",
                           version);
  }
  TANDEM_RETURN_IF_ERROR(SessionAt(version - 1).status());
  Phase phase(this, "optimize", fmt::format("OptimizerStep to version {}", version));
  OptimizerStepResult result;
  last_step_ = {};
  TANDEM_RETURN_IF_ERROR(changed_.BeforeStep(session->shard(), step_complete_));
  TANDEM_ASSIGN_OR_RETURN(result.step, session->Step());
  if (result.step.skipped) {
    LogWarn("the gradient norm is {}: version {} keeps the weights of {}", result.step.grad_norm,
            version, version - 1);
  }
  changed_.AfterStep(result.step.changed);
  SetVersion(version);
  // Memory is released before the rollout allocates its own for the sync that follows.
  if (step_complete_) TANDEM_RETURN_IF_ERROR(session->ReleaseForRollout());
  result.report = phase.Report();
  last_step_ = result;
  return result;
}

absl::StatusOr<ComputeLogProbsResult> Trainer::ComputeLogProbs(int64_t step, LogProbPolicy policy) {
  TANDEM_ASSIGN_OR_RETURN(TrainingSession * session, Session());
  const bool probe = policy == LogProbPolicy::kProbe;
  const PolicyNames names = NamesOf(policy);
  SetLogStep(step);
  Phase phase(this, names.phase,
              fmt::format("ComputeLogProbs of step {}, {}", step, names.log_probs));
  auto samples = probe ? samples_->PullProbe(step) : samples_->Pull(step, -1);
  TANDEM_RETURN_IF_ERROR(
      Agree(session->communicator(), samples.status(), "pulling samples").status());
  ScoreRequest request{.sum_pi_squared =
                           options_.sum_pi_squared && policy == LogProbPolicy::kCurrent};
  if (policy == LogProbPolicy::kCurrent || policy == LogProbPolicy::kCompared) {
    request.compared_version = status().version;
  }
  ScoreExtras extras;
  TANDEM_ASSIGN_OR_RETURN(const LogProbsBySample log_probs,
                          session->Score(*samples, policy, request, &extras));
  TANDEM_RETURN_IF_ERROR(SendScores(step, policy, log_probs, extras));
  ComputeLogProbsResult result;
  for (const Sample& sample : *samples) result.tokens += sample.response_tokens();
  result.comparison = extras.comparison;
  result.report = phase.Report();
  return result;
}

absl::Status Trainer::SendScores(int64_t step,
                                 LogProbPolicy policy,
                                 const LogProbsBySample& log_probs,
                                 const ScoreExtras& extras) {
  if (policy == LogProbPolicy::kCompared) {
    const bool differ = extras.comparison.identical < extras.comparison.compared;
    if (differ && !options_.tolerate_mismatch) SendMismatchedLogProbs(step, log_probs);
    return absl::OkStatus();
  }
  TANDEM_RETURN_IF_ERROR(samples_->PutLogProbs(step, NamesOf(policy).log_probs, log_probs));
  if (extras.sum_pi_squared.empty()) return absl::OkStatus();
  return samples_->PutLogProbs(step, "sum_pi_squared", extras.sum_pi_squared);
}

absl::StatusOr<SyncResult> Trainer::SyncWeights(const SyncCommand& command) {
  TANDEM_ASSIGN_OR_RETURN(TrainingSession * session, SessionAt(command.version));
  Phase phase(this, "sync", fmt::format("SyncWeights of version {}", command.version));
  TANDEM_RETURN_IF_ERROR(session->ReleaseForRollout());
  const bool target =
      std::count(command.target_ranks.begin(), command.target_ranks.end(), options_.rank) > 0;
  SyncLink link;
  absl::Status connected;
  if (target && !command.targets.empty()) {
    auto made = ConnectTargets(connect_, command.targets);
    connected = made.status();
    if (made.ok()) link = *std::move(made);
    rollout_incarnation_ = command.targets.front().incarnation;
  }
  const ChainUpdateClient* const chain = link.chain;
  SyncResult result;
  absl::StatusOr<PublishReport> report;
  {
    const std::unique_ptr<WeightSource> source = session->weights().MakeWeightSource();
    const absl::StatusOr<UpdateScope> scope = ChooseScope(*session, link.updates.get());
    report = scope.ok() ? session->publisher().Publish(command.version, *source, link.updates.get(),
                                                       *scope)
                        : absl::StatusOr<PublishReport>(scope.status());
  }
  const absl::StatusOr<double> share = changed_.Of(command.version, connected.ok() && report.ok(),
                                                   session->shard(), session->communicator());
  TANDEM_RETURN_IF_ERROR(connected);
  // Rollouts of a chain that do not hold the version are told one by one.
  const bool told = chain != nullptr && chain->ended() && !session->publisher().source_failed();
  if (!told) TANDEM_RETURN_IF_ERROR(report.status());
  TANDEM_RETURN_IF_ERROR(share.status());
  // A rollout that reads the shard directly gives this device no work, so the publication may not
  // have waited for the device.
  TANDEM_RETURN_IF_ERROR(session->shard().device()->Synchronize());
  if (told) result.outcomes = chain->outcomes();
  if (link.updates != nullptr && report.ok()) {
    if (!told) result.outcomes = {{absl::OkStatus(), link.updates->traffic()}};
    LogInfo("version {}: {} tensors, {} bytes went to the rollout{} in {} buckets, {}",
            command.version, report->tensors, report->bytes,
            told ? fmt::format("s, of which {} hold them,", chain->accepted()) : "",
            report->buckets,
            report->direct             ? "direct"
            : link.updates->over_tcp() ? "over TCP"
                                       : "through slots");
  }
  // The controller wakes the KV caches when every rank has answered.
  TANDEM_RETURN_IF_ERROR(session->CheckReleased());
  if (report.ok()) result.publish = *report;
  result.changed_share = *share;
  result.report = phase.Report();
  return result;
}

absl::StatusOr<PhaseReport> Trainer::Run(
    const CommandName& name, const std::function<absl::Status(TrainingSession&)>& work) {
  TANDEM_ASSIGN_OR_RETURN(TrainingSession * session,
                          name.version ? SessionAt(*name.version) : Session());
  Phase phase(this, name.phase, name.action);
  TANDEM_RETURN_IF_ERROR(work(*session));
  return phase.Report();
}

absl::StatusOr<CheckResult> Trainer::CheckWeights(const CheckCommand& command) {
  CheckResult result;
  const auto check = [&](TrainingSession& session) -> absl::Status {
    RolloutLink link;
    absl::Status connected;
    if (!command.rollout_address.empty()) {
      auto made = connect_({command.rollout_address, command.rollout_incarnation != 0
                                                         ? command.rollout_incarnation
                                                         : rollout_incarnation_});
      connected = made.status();
      if (made.ok()) link = *std::move(made);
    }
    TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<ExpectedWeights> expected,
                            session.weights().OpenExpected(command.hf_checkpoint));
    auto report = tandem::CheckWeights(session.decoder().layout(), *expected, link.reader);
    TANDEM_RETURN_IF_ERROR(connected);
    TANDEM_ASSIGN_OR_RETURN(result.weights, std::move(report));
    return absl::OkStatus();
  };
  TANDEM_ASSIGN_OR_RETURN(result.report, Run({"check", "CheckWeights"}, check));
  return result;
}

absl::StatusOr<SaveResult> Trainer::SaveState(const SaveCommand& command) {
  SaveResult result;
  const auto save = [&](TrainingSession& session) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(result.bytes,
                            session.weights().Save({.directory = command.directory,
                                                    .tokenizer_dir = options_.session.model_dir,
                                                    .version = command.version,
                                                    .optimizer = options_.save_optimizer,
                                                    .hf_model = options_.save_hf_model},
                                                   session.optimizer()));
    return absl::OkStatus();
  };
  const std::string action = fmt::format("SaveState of version {}", command.version);
  TANDEM_ASSIGN_OR_RETURN(result.report, Run({"save", action, command.version}, save));
  return result;
}

namespace {

// The timeout of a collective, as a share of the RPC timeout. A collective times out before the RPC
// that waits for it, so that the controller learns the name of the missing rank.
constexpr double kShareOfTimeout = 0.9;

}  // namespace

absl::Status Trainer::StartSession(const ResetCommand& command) {
  session_.reset();
  SetVersion(-1);
  changed_.Reset();
  last_step_ = {};
  trained_step_ = -1;
  TANDEM_RETURN_IF_ERROR(group_.Join({.rank = options_.rank,
                                      .world_size = command.world_size,
                                      .rendezvous = command.rendezvous,
                                      .generation = command.generation,
                                      .deadline = kShareOfTimeout * options_.rpc_timeout,
                                      .single_channel = options_.single_channel,
                                      .hosts = {.members = command.members,
                                                .listener = options_.data_listener,
                                                .security = options_.data_security,
                                                .ticket = command.group_ticket}}));
  TANDEM_RETURN_IF_ERROR(
      Agree(*group_.communicator(), MakeSession(), "loading the model").status());
  TANDEM_RETURN_IF_ERROR(session_->weights().Load({.checkpoint_dir = command.checkpoint_dir,
                                                   .version = command.version,
                                                   .adapter_path = options_.adapter_path,
                                                   .seed = options_.seed,
                                                   .keep_reference = options_.keep_reference},
                                                  session_->optimizer()));
  return session_->WeightsChanged();
}

absl::Status Trainer::MakeSession() {
  SessionOptions session_options = options_.session;
  session_options.publish.transport = transport_;
  session_options.publish.group_generation = group_.generation();
  TANDEM_ASSIGN_OR_RETURN(session_, TrainingSession::Create(session_options,
                                                            {.device = backend_->device(),
                                                             .forward = forward_.get(),
                                                             .backward = backward_.get(),
                                                             .shard = shard_ops_.get()},
                                                            group_.communicator(), &ledger_));
  return backend_->CheckModel(session_->spec());
}

}  // namespace tandem
