#include "trainer_worker/trainer_service.h"

#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/base/thread_annotations.h>
#include <absl/status/statusor.h>
#include <grpcpp/grpcpp.h>

#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/net/grpc_status.h"
#include "common/net/worker_codec.h"
#include "common/process/files/confined_path.h"
#include "common/types/host_id.h"
#include "tandem/v1/trainer.grpc.pb.h"
#include "trainer_worker/engine_thread.h"
#include "trainer_worker/trainer.h"

namespace tandem {
namespace {

void Fill(const ProbabilityComparison& comparison, v1::ProbabilityComparison* proto) {
  proto->set_tokens(comparison.tokens);
  proto->set_policy_mean(comparison.policy_mean);
  proto->set_policy_squares(comparison.policy_squares);
  proto->set_rollout_mean(comparison.rollout_mean);
  proto->set_rollout_squares(comparison.rollout_squares);
  proto->set_products(comparison.products);
  proto->set_difference_mean(comparison.difference_mean);
  proto->set_difference_squares(comparison.difference_squares);
  proto->set_difference_max(comparison.difference_max);
}

void Fill(const LogProbComparison& comparison, v1::LogProbComparison* proto) {
  proto->set_compared_tokens(comparison.compared);
  proto->set_identical_tokens(comparison.identical);
  proto->set_max_abs_difference(comparison.max_abs_difference);
  proto->set_sum_abs_difference(comparison.sum_abs_difference);
  Fill(comparison.probabilities, proto->mutable_probabilities());
  for (const LogProbMismatch& mismatch : comparison.mismatches) {
    v1::LogProbMismatch* entry = proto->add_mismatches();
    entry->set_sample_id(mismatch.sample_id);
    entry->set_position(mismatch.position);
    entry->set_weight_version(mismatch.weight_version);
    entry->set_rollout(mismatch.rollout);
    entry->set_trainer(mismatch.trainer);
  }
}

void Fill(const ForwardBackwardResult& result, v1::ForwardBackwardResponse* response) {
  for (const auto& [name, value] : result.batch.metrics) {
    (*response->mutable_metrics())[name] = value;
  }
  response->set_micro_batches(result.batch.micro_batches);
  Fill(result.batch.comparison, response->mutable_comparison());
  response->set_tokens(result.batch.tokens);
  response->set_forward_seconds(result.batch.forward_seconds);
  response->set_backward_seconds(result.batch.backward_seconds);
  *response->mutable_report() = ToProto(result.report);
}

LogProbPolicy PolicyFromProto(v1::ComputeLogProbsRequest::Policy policy) {
  if (policy == v1::ComputeLogProbsRequest::PROBE) return LogProbPolicy::kProbe;
  if (policy == v1::ComputeLogProbsRequest::COMPARED) return LogProbPolicy::kCompared;
  return policy == v1::ComputeLogProbsRequest::REFERENCE ? LogProbPolicy::kReference
                                                         : LogProbPolicy::kCurrent;
}

// No run comes near these numbers. They leave room for what is computed from them: the next
// version, or the number of an update (kUpdatesPerGroup).
absl::Status CheckNumbers(const v1::TrainerResetRequest& request) {
  constexpr int64_t kLargestGeneration = std::numeric_limits<int32_t>::max();
  constexpr int64_t kLargestCount = int64_t{1} << 48;
  const auto check = [](std::string_view name, int64_t value, int64_t largest) -> absl::Status {
    if (value >= 0 && value <= largest) return absl::OkStatus();
    return InvalidArgument("the {} of Reset is {}, and must be from 0 to {}", name, value, largest);
  };
  TANDEM_RETURN_IF_ERROR(check("generation", request.generation(), kLargestGeneration));
  TANDEM_RETURN_IF_ERROR(check("version", request.version(), kLargestCount));
  return check("step", request.step(), kLargestCount);
}

// OK without members: then all ranks are on one host.
absl::Status CheckMembers(const v1::TrainerResetRequest& request) {
  const int members = request.members_size();
  if (members == 0 || members == request.world_size()) return absl::OkStatus();
  return InvalidArgument("Reset has {} members, and its world size is {}", members,
                         request.world_size());
}

std::vector<GroupMember> MembersOf(const v1::TrainerResetRequest& request) {
  std::vector<GroupMember> members;
  for (const v1::TrainerMember& member : request.members()) {
    const HostId host{.boot_id = member.boot_id(), .node = member.node()};
    members.push_back({.host = host.Key(), .data_address = member.data_address()});
  }
  return members;
}

// An empty path is none.
absl::Status CheckPaths(const v1::TrainerResetRequest& request, const CallFolders& folders) {
  if (!request.rendezvous().empty()) {
    TANDEM_RETURN_IF_ERROR(
        CheckConfined("the rendezvous of Reset", request.rendezvous(), folders.sockets));
  }
  if (request.checkpoint_dir().empty()) return absl::OkStatus();
  return CheckConfined("the checkpoint of Reset", request.checkpoint_dir(), folders.loaded);
}

void Fill(const SyncResult& result, v1::SyncWeightsResponse* response) {
  response->set_bytes(result.publish.bytes);
  response->set_buckets(result.publish.buckets);
  response->set_tensors(result.publish.tensors);
  response->set_seconds(result.publish.seconds);
  response->set_changed_share(result.changed_share);
  response->set_digest(result.publish.digest);
  response->set_sent_bytes(result.publish.sent_bytes);
  for (const ChainOutcome& outcome : result.outcomes) {
    v1::SyncOutcome& told = *response->add_outcomes();
    told.set_code(static_cast<int>(outcome.status.code()));
    told.set_message(std::string(outcome.status.message()));
    told.set_silent(OriginOf(outcome.status) == FailureOrigin::kPartner);
    told.set_received_bytes(outcome.traffic.received);
    told.set_forwarded_bytes(outcome.traffic.forwarded);
  }
  *response->mutable_report() = ToProto(result.report);
}

class GrpcTrainerService final : public TrainerService, public v1::TrainerService::Service {
 public:
  GrpcTrainerService(std::function<void()> on_shutdown,
                     std::function<void(const absl::Status&)> on_device_lost)
      : on_shutdown_(std::move(on_shutdown)), on_device_lost_(std::move(on_device_lost)) {}

  void SetReady(Trainer* trainer,
                EngineThread* engine,
                const v1::WorkerId& worker,
                const CallFolders& folders) override {
    const MutexLock lock(parts_mutex_);
    parts_ = {trainer, engine, worker, folders};
  }
  grpc::Service* service() override { return this; }

  grpc::Status Reset(grpc::ServerContext* context,
                     const v1::TrainerResetRequest* request,
                     v1::TrainerResetResponse* response) override;
  grpc::Status ForwardBackward(grpc::ServerContext* context,
                               const v1::ForwardBackwardRequest* request,
                               v1::ForwardBackwardResponse* response) override;
  grpc::Status OptimizerStep(grpc::ServerContext* context,
                             const v1::OptimizerStepRequest* request,
                             v1::OptimizerStepResponse* response) override;
  grpc::Status ComputeLogProbs(grpc::ServerContext* context,
                               const v1::ComputeLogProbsRequest* request,
                               v1::ComputeLogProbsResponse* response) override;
  grpc::Status SyncWeights(grpc::ServerContext* context,
                           const v1::SyncWeightsRequest* request,
                           v1::SyncWeightsResponse* response) override;
  grpc::Status CheckWeights(grpc::ServerContext* context,
                            const v1::CheckWeightsRequest* request,
                            v1::CheckWeightsResponse* response) override;
  grpc::Status SaveState(grpc::ServerContext* context,
                         const v1::SaveStateRequest* request,
                         v1::SaveStateResponse* response) override;
  grpc::Status GetStatus(grpc::ServerContext* context,
                         const v1::TrainerStatusRequest* request,
                         v1::TrainerStatusResponse* response) override;
  grpc::Status Shutdown(grpc::ServerContext* context,
                        const v1::TrainerShutdownRequest* request,
                        v1::TrainerShutdownResponse* response) override;

 private:
  struct Parts {
    Trainer* trainer = nullptr;
    EngineThread* engine = nullptr;
    v1::WorkerId worker;
    CallFolders folders;
  };
  // Unavailable before SetReady.
  absl::StatusOr<Parts> Ready() const;
  // Aborted if the call is for another incarnation.
  absl::StatusOr<Parts> PartsFor(int64_t incarnation) const;
  // Runs `work` on the engine thread; `fill` copies its result into the reply.
  template <typename T>
  grpc::Status Run(int64_t incarnation,
                   std::function<absl::StatusOr<T>(Trainer&)> work,
                   std::function<void(const T&)> fill);
  // The same, but Aborted if the call is for another generation of the group.
  template <typename T>
  grpc::Status RunInGroup(int64_t incarnation,
                          int64_t generation,
                          std::function<absl::StatusOr<T>(Trainer&)> work,
                          std::function<void(const T&)> fill);
  // Adds the worker, its phase and its last action to an error.
  grpc::Status Reply(absl::Status status) const;

  const std::function<void()> on_shutdown_;
  const std::function<void(const absl::Status&)> on_device_lost_;
  mutable Mutex parts_mutex_;
  Parts parts_ ABSL_GUARDED_BY(parts_mutex_);
};

absl::StatusOr<GrpcTrainerService::Parts> GrpcTrainerService::Ready() const {
  const MutexLock lock(parts_mutex_);
  if (parts_.trainer == nullptr) {
    return absl::UnavailableError("this trainer worker is starting; try again in a moment");
  }
  return parts_;
}

absl::StatusOr<GrpcTrainerService::Parts> GrpcTrainerService::PartsFor(int64_t incarnation) const {
  TANDEM_ASSIGN_OR_RETURN(Parts parts, Ready());
  if (incarnation != parts.worker.incarnation()) {
    return MakeStatus(absl::StatusCode::kAborted,
                      "the call is for incarnation {} of trainer {}, this is incarnation {}",
                      incarnation, parts.worker.rank(), parts.worker.incarnation());
  }
  return parts;
}

grpc::Status GrpcTrainerService::Reply(absl::Status status) const {
  if (status.ok()) return grpc::Status::OK;
  v1::ErrorInfo info;
  info.mutable_worker()->set_role(v1::ROLE_TRAINER);
  std::string message(status.message());
  if (const auto parts = Ready(); parts.ok()) {
    const TrainerStatus now = parts->trainer->status();
    *info.mutable_worker() = parts->worker;
    info.set_phase(now.phase);
    info.set_last_action(now.last_action);
    LogWarn("{} failed: {}", now.last_action, message);
  }
  SetErrorInfo(status, info);
  return ToGrpcStatus(status);
}

template <typename T>
grpc::Status GrpcTrainerService::Run(int64_t incarnation,
                                     std::function<absl::StatusOr<T>(Trainer&)> work,
                                     std::function<void(const T&)> fill) {
  const auto parts = PartsFor(incarnation);
  if (!parts.ok()) return Reply(parts.status());
  const absl::StatusOr<T> result = parts->engine->Call<T>([&] { return work(*parts->trainer); });
  if (IsDeviceLost(result.status())) on_device_lost_(result.status());
  if (!result.ok()) return Reply(result.status());
  fill(*result);
  return grpc::Status::OK;
}

template <typename T>
grpc::Status GrpcTrainerService::RunInGroup(int64_t incarnation,
                                            int64_t generation,
                                            std::function<absl::StatusOr<T>(Trainer&)> work,
                                            std::function<void(const T&)> fill) {
  return Run<T>(
      incarnation,
      [&](Trainer& trainer) -> absl::StatusOr<T> {
        TANDEM_RETURN_IF_ERROR(trainer.CheckGeneration(generation));
        return work(trainer);
      },
      std::move(fill));
}

grpc::Status GrpcTrainerService::Reset(grpc::ServerContext* /*context*/,
                                       const v1::TrainerResetRequest* request,
                                       v1::TrainerResetResponse* response) {
  const auto parts = PartsFor(request->incarnation());
  if (!parts.ok()) return Reply(parts.status());
  if (const absl::Status valid = CheckNumbers(*request); !valid.ok()) return Reply(valid);
  if (const absl::Status valid = CheckMembers(*request); !valid.ok()) return Reply(valid);
  if (const absl::Status inside = CheckPaths(*request, parts->folders); !inside.ok()) {
    return Reply(inside);
  }
  // Called from this thread, because the engine thread may hang in a collective of the old group.
  parts->trainer->Interrupt(request->generation());
  const ResetCommand command{.generation = request->generation(),
                             .world_size = request->world_size(),
                             .rendezvous = request->rendezvous(),
                             .checkpoint_dir = request->checkpoint_dir(),
                             .version = request->version(),
                             .step = request->step(),
                             .members = MembersOf(*request),
                             .group_ticket = request->group_ticket()};
  return Run<ResetResult>(
      request->incarnation(), [&](Trainer& trainer) { return trainer.Reset(command); },
      [response](const ResetResult& result) {
        response->set_version(result.version);
        response->set_parameters(result.parameters);
        response->set_shard_parameters(result.shard_parameters);
        *response->mutable_report() = ToProto(result.report);
      });
}

grpc::Status GrpcTrainerService::ForwardBackward(grpc::ServerContext* /*context*/,
                                                 const v1::ForwardBackwardRequest* request,
                                                 v1::ForwardBackwardResponse* response) {
  const ForwardBackwardCommand command{.step = request->step(),
                                       .mini_batch = request->mini_batch(),
                                       .mini_batches = request->mini_batches(),
                                       .version = request->version(),
                                       .global_tokens = request->global_tokens(),
                                       .global_samples = request->global_samples(),
                                       .compare_log_probs = request->compare_log_probs(),
                                       .first_update = request->first_update(),
                                       .log_probs_compared = request->log_probs_compared()};
  return RunInGroup<ForwardBackwardResult>(
      request->incarnation(), request->generation(),
      [&](Trainer& trainer) { return trainer.ForwardBackward(command); },
      [response](const ForwardBackwardResult& result) { Fill(result, response); });
}

grpc::Status GrpcTrainerService::OptimizerStep(grpc::ServerContext* /*context*/,
                                               const v1::OptimizerStepRequest* request,
                                               v1::OptimizerStepResponse* response) {
  return RunInGroup<OptimizerStepResult>(
      request->incarnation(), request->generation(),
      [&](Trainer& trainer) { return trainer.OptimizerStep(request->version()); },
      [response](const OptimizerStepResult& result) {
        response->set_grad_norm(result.step.grad_norm);
        response->set_learning_rate(result.step.learning_rate);
        response->set_skipped(result.step.skipped);
        *response->mutable_report() = ToProto(result.report);
      });
}

grpc::Status GrpcTrainerService::ComputeLogProbs(grpc::ServerContext* /*context*/,
                                                 const v1::ComputeLogProbsRequest* request,
                                                 v1::ComputeLogProbsResponse* response) {
  if (request->policy() == v1::ComputeLogProbsRequest::POLICY_UNSPECIFIED) {
    return Reply(
        InvalidArgument("ComputeLogProbs needs a policy: CURRENT, REFERENCE, PROBE or COMPARED"));
  }
  const LogProbPolicy policy = PolicyFromProto(request->policy());
  return RunInGroup<ComputeLogProbsResult>(
      request->incarnation(), request->generation(),
      [&](Trainer& trainer) { return trainer.ComputeLogProbs(request->step(), policy); },
      [response](const ComputeLogProbsResult& result) {
        response->set_tokens(result.tokens);
        Fill(result.comparison, response->mutable_comparison());
        *response->mutable_report() = ToProto(result.report);
      });
}

grpc::Status GrpcTrainerService::SyncWeights(grpc::ServerContext* /*context*/,
                                             const v1::SyncWeightsRequest* request,
                                             v1::SyncWeightsResponse* response) {
  SyncCommand command{.version = request->version()};
  command.target_ranks.assign(request->target_ranks().begin(), request->target_ranks().end());
  for (const v1::SyncTarget& target : request->targets()) {
    command.targets.push_back({.address = target.address(),
                               .incarnation = target.incarnation(),
                               .scramble = target.scramble(),
                               .over_tcp = target.over_tcp()});
  }
  return RunInGroup<SyncResult>(
      request->incarnation(), request->generation(),
      [&](Trainer& trainer) { return trainer.SyncWeights(command); },
      [response](const SyncResult& result) { Fill(result, response); });
}

grpc::Status GrpcTrainerService::CheckWeights(grpc::ServerContext* /*context*/,
                                              const v1::CheckWeightsRequest* request,
                                              v1::CheckWeightsResponse* response) {
  const CheckCommand command{.rollout_address = request->rollout_address(),
                             .rollout_incarnation = request->rollout_incarnation(),
                             .hf_checkpoint = request->hf_checkpoint()};
  return RunInGroup<CheckResult>(
      request->incarnation(), request->generation(),
      [&](Trainer& trainer) { return trainer.CheckWeights(command); },
      [response](const CheckResult& result) {
        const WeightCheckReport& report = result.weights;
        response->set_checked(report.checked);
        response->set_missing(report.missing);
        response->set_unexpected(report.unexpected);
        response->set_mismatched(report.mismatched);
        response->set_first_difference(report.first_difference);
        response->set_expected(report.expected);
        response->mutable_differing()->Assign(report.differing.begin(), report.differing.end());
        response->set_version(report.version);
        *response->mutable_report() = ToProto(result.report);
      });
}

grpc::Status GrpcTrainerService::SaveState(grpc::ServerContext* /*context*/,
                                           const v1::SaveStateRequest* request,
                                           v1::SaveStateResponse* response) {
  const auto parts = PartsFor(request->incarnation());
  if (!parts.ok()) return Reply(parts.status());
  const absl::Status inside =
      CheckConfined("the directory of SaveState", request->directory(), parts->folders.saved);
  if (!inside.ok()) return Reply(inside);
  const SaveCommand command{.directory = request->directory(), .version = request->version()};
  return RunInGroup<SaveResult>(
      request->incarnation(), request->generation(),
      [&](Trainer& trainer) { return trainer.SaveState(command); },
      [response](const SaveResult& result) {
        response->set_bytes(result.bytes);
        *response->mutable_report() = ToProto(result.report);
      });
}

grpc::Status GrpcTrainerService::GetStatus(grpc::ServerContext* /*context*/,
                                           const v1::TrainerStatusRequest* /*request*/,
                                           v1::TrainerStatusResponse* response) {
  const auto parts = Ready();
  if (!parts.ok()) return Reply(parts.status());
  const TrainerStatus now = parts->trainer->status();
  *response->mutable_worker() = parts->worker;
  response->set_phase(now.phase);
  response->set_version(now.version);
  response->set_last_action(now.last_action);
  *response->mutable_ledger() = ToProto(parts->trainer->ledger().Snapshot());
  return grpc::Status::OK;
}

grpc::Status GrpcTrainerService::Shutdown(grpc::ServerContext* /*context*/,
                                          const v1::TrainerShutdownRequest* /*request*/,
                                          v1::TrainerShutdownResponse* /*response*/) {
  on_shutdown_();
  return grpc::Status::OK;
}

}  // namespace

std::unique_ptr<TrainerService> TrainerService::Create(
    std::function<void()> on_shutdown, std::function<void(const absl::Status&)> on_device_lost) {
  return std::make_unique<GrpcTrainerService>(std::move(on_shutdown), std::move(on_device_lost));
}

}  // namespace tandem
