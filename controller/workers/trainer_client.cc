#include "controller/workers/trainer_client.h"

#include <functional>
#include <memory>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/net/call_tracker.h"
#include "common/net/channel.h"
#include "common/net/worker_codec.h"
#include "tandem/v1/trainer.grpc.pb.h"

namespace tandem {
namespace {

ProbabilityComparison ComparisonFromProto(const v1::ProbabilityComparison& proto) {
  return {.tokens = proto.tokens(),
          .policy_mean = proto.policy_mean(),
          .policy_squares = proto.policy_squares(),
          .rollout_mean = proto.rollout_mean(),
          .rollout_squares = proto.rollout_squares(),
          .products = proto.products(),
          .difference_mean = proto.difference_mean(),
          .difference_squares = proto.difference_squares(),
          .difference_max = proto.difference_max()};
}

ReportedComparison ComparisonFromProto(const v1::LogProbComparison& proto) {
  ReportedComparison result;
  result.compared_tokens = proto.compared_tokens();
  result.identical_tokens = proto.identical_tokens();
  result.max_abs_difference = proto.max_abs_difference();
  result.sum_abs_difference = proto.sum_abs_difference();
  result.probabilities = ComparisonFromProto(proto.probabilities());
  for (const v1::LogProbMismatch& mismatch : proto.mismatches()) {
    result.mismatches.push_back({.sample_id = mismatch.sample_id(),
                                 .position = mismatch.position(),
                                 .weight_version = mismatch.weight_version(),
                                 .rollout = mismatch.rollout(),
                                 .trainer = mismatch.trainer()});
  }
  return result;
}

ForwardBackwardReply ToResult(const v1::ForwardBackwardResponse& proto) {
  ForwardBackwardReply result;
  for (const auto& [name, value] : proto.metrics()) result.metrics[name] = value;
  result.micro_batches = proto.micro_batches();
  result.comparison = ComparisonFromProto(proto.comparison());
  result.tokens = proto.tokens();
  result.report = FromProto(proto.report());
  return result;
}

OptimizerStepReply ToResult(const v1::OptimizerStepResponse& proto) {
  return {.grad_norm = proto.grad_norm(),
          .learning_rate = proto.learning_rate(),
          .skipped = proto.skipped(),
          .report = FromProto(proto.report())};
}

LogProbsReply ToResult(const v1::ComputeLogProbsResponse& proto) {
  return {.comparison = ComparisonFromProto(proto.comparison()),
          .report = FromProto(proto.report())};
}

SyncOutcome OutcomeFromProto(const v1::SyncOutcome& proto) {
  absl::Status status(static_cast<absl::StatusCode>(proto.code()), proto.message());
  if (proto.silent()) status = WithOrigin(std::move(status), FailureOrigin::kPartner);
  return {.status = std::move(status),
          .received_bytes = proto.received_bytes(),
          .forwarded_bytes = proto.forwarded_bytes()};
}

SyncReply ToResult(const v1::SyncWeightsResponse& proto) {
  std::vector<SyncOutcome> outcomes;
  for (const v1::SyncOutcome& outcome : proto.outcomes())
    outcomes.push_back(OutcomeFromProto(outcome));
  return {.bytes = proto.bytes(),
          .buckets = proto.buckets(),
          .tensors = proto.tensors(),
          .seconds = proto.seconds(),
          .changed_share = proto.changed_share(),
          .digest = proto.digest(),
          .sent_bytes = proto.sent_bytes(),
          .outcomes = std::move(outcomes),
          .report = FromProto(proto.report())};
}

WeightCheckResult ToResult(const v1::CheckWeightsResponse& proto) {
  return {.version = proto.version(),
          .expected = proto.expected(),
          .checked = proto.checked(),
          .missing = proto.missing(),
          .unexpected = proto.unexpected(),
          .mismatched = proto.mismatched(),
          .first_difference = proto.first_difference(),
          .differing = {proto.differing().begin(), proto.differing().end()},
          .report = FromProto(proto.report())};
}

SaveReply ToResult(const v1::SaveStateResponse& proto) {
  return {.bytes = proto.bytes(), .report = FromProto(proto.report())};
}

v1::ComputeLogProbsRequest::Policy PolicyToProto(ScoredPolicy policy) {
  switch (policy) {
    case ScoredPolicy::kCurrent:
      return v1::ComputeLogProbsRequest::CURRENT;
    case ScoredPolicy::kReference:
      return v1::ComputeLogProbsRequest::REFERENCE;
    case ScoredPolicy::kProbe:
      return v1::ComputeLogProbsRequest::PROBE;
    case ScoredPolicy::kCompared:
      return v1::ComputeLogProbsRequest::COMPARED;
  }
  return v1::ComputeLogProbsRequest::POLICY_UNSPECIFIED;
}

// Takes a response to `done` as a plain struct.
template <typename Result>
auto Converted(Done<Result> done) {
  return [done = std::move(done)](const auto& response) {
    done(response.ok() ? absl::StatusOr<Result>(ToResult(*response))
                       : absl::StatusOr<Result>(response.status()));
  };
}

class GrpcTrainerClient : public TrainerClient {
 public:
  GrpcTrainerClient(int64_t incarnation,
                    absl::Duration timeout,
                    const std::shared_ptr<grpc::Channel>& channel,
                    std::shared_ptr<TrainerGroup> group)
      : incarnation_(incarnation),
        group_(std::move(group)),
        timeout_(timeout),
        stub_(v1::TrainerService::NewStub(channel)) {}

  void Reset(const ResetCall& command, StatusDone done) override {
    v1::TrainerResetRequest request;
    request.set_generation(command.generation);
    request.set_world_size(command.world_size);
    request.set_rendezvous(command.rendezvous);
    for (const WorkerMember& place : command.members) {
      v1::TrainerMember& member = *request.add_members();
      member.set_boot_id(place.host.boot_id);
      member.set_node(place.host.node);
      member.set_data_address(place.data_address);
    }
    request.set_group_ticket(command.group_ticket);
    request.set_checkpoint_dir(command.checkpoint_dir);
    request.set_version(command.version);
    request.set_step(LogStep());
    group_->generation = command.generation;
    Call<v1::TrainerResetResponse>(&Calls::Reset, std::move(request),
                                   [done](const auto& reply) { done(reply.status()); });
  }

  void ForwardBackward(const ForwardBackwardCall& command,
                       Done<ForwardBackwardReply> done) override {
    v1::ForwardBackwardRequest request;
    request.set_step(command.step);
    request.set_mini_batch(command.mini_batch);
    request.set_mini_batches(command.mini_batches);
    request.set_version(command.version);
    request.set_global_tokens(command.global_tokens);
    request.set_global_samples(command.global_samples);
    request.set_compare_log_probs(command.compare_log_probs);
    request.set_first_update(command.first_update);
    request.set_log_probs_compared(command.log_probs_compared);
    Call<v1::ForwardBackwardResponse>(&Calls::ForwardBackward, std::move(request),
                                      Converted(std::move(done)));
  }

  void OptimizerStep(int64_t version, Done<OptimizerStepReply> done) override {
    v1::OptimizerStepRequest request;
    request.set_version(version);
    Call<v1::OptimizerStepResponse>(&Calls::OptimizerStep, std::move(request),
                                    Converted(std::move(done)));
  }

  void ComputeLogProbs(int64_t step, ScoredPolicy policy, Done<LogProbsReply> done) override {
    v1::ComputeLogProbsRequest request;
    request.set_step(step);
    request.set_policy(PolicyToProto(policy));
    Call<v1::ComputeLogProbsResponse>(&Calls::ComputeLogProbs, std::move(request),
                                      Converted(std::move(done)));
  }

  void SyncWeights(const SyncCall& command, Done<SyncReply> done) override {
    v1::SyncWeightsRequest request;
    request.set_version(command.version);
    request.mutable_target_ranks()->Add(command.senders.begin(), command.senders.end());
    for (const SyncTarget& target : command.targets) {
      v1::SyncTarget& to = *request.add_targets();
      to.set_address(target.address);
      to.set_incarnation(target.incarnation);
      to.set_scramble(target.scramble);
      to.set_over_tcp(target.over_tcp);
    }
    Call<v1::SyncWeightsResponse>(&Calls::SyncWeights, std::move(request),
                                  Converted(std::move(done)));
  }

  void CheckWeights(const CheckCall& command, Done<WeightCheckResult> done) override {
    v1::CheckWeightsRequest request;
    request.set_rollout_address(command.rollout_address);
    request.set_rollout_incarnation(command.rollout_incarnation);
    request.set_hf_checkpoint(command.hf_checkpoint);
    Call<v1::CheckWeightsResponse>(&Calls::CheckWeights, std::move(request),
                                   Converted(std::move(done)));
  }

  void SaveState(const std::string& directory, int64_t version, Done<SaveReply> done) override {
    v1::SaveStateRequest request;
    request.set_directory(directory);
    request.set_version(version);
    Call<v1::SaveStateResponse>(&Calls::SaveState, std::move(request), Converted(std::move(done)));
  }

  void Shutdown(StatusDone done) override {
    Start<v1::TrainerShutdownResponse>(&Calls::Shutdown, absl::Seconds(10),
                                       v1::TrainerShutdownRequest(),
                                       [done](const auto& reply) { done(reply.status()); });
  }

  void CancelAll() override { calls_->CancelAll(); }
  int64_t incarnation() const override { return incarnation_; }

 private:
  using Calls = v1::TrainerService::StubInterface::async_interface;
  template <typename Request, typename Response>
  using Method = void (Calls::*)(grpc::ClientContext*,
                                 const Request*,
                                 Response*,
                                 std::function<void(grpc::Status)>);

  template <typename Response, typename Request, typename Then>
  void Start(Method<Request, Response> method, absl::Duration timeout, Request request, Then then) {
    StartCall(calls_, timeout, stub_->async(), method, std::move(request), std::move(then));
  }

  template <typename Response, typename Request, typename Then>
  void Call(Method<Request, Response> method, Request request, Then then) {
    request.set_incarnation(incarnation_);
    request.set_generation(group_->generation);
    Start<Response>(method, timeout_, std::move(request), std::move(then));
  }

  const int64_t incarnation_;
  const std::shared_ptr<TrainerGroup> group_;
  const absl::Duration timeout_;
  const std::unique_ptr<v1::TrainerService::Stub> stub_;
  // Shared with calls, which may outlive this client.
  const std::shared_ptr<CallTracker> calls_ = std::make_shared<CallTracker>();
};

}  // namespace

absl::Status TrainerClient::Unimplemented(const char* call) {
  return MakeStatus(absl::StatusCode::kUnimplemented,
                    "this client of a trainer does not implement the call {}", call);
}

absl::StatusOr<std::shared_ptr<TrainerClient>> MakeGrpcTrainerClient(
    const std::string& address,
    int64_t incarnation,
    absl::Duration timeout,
    const RpcSecurity& security,
    std::shared_ptr<CallObserver> observer,
    std::shared_ptr<TrainerGroup> group) {
  TANDEM_ASSIGN_OR_RETURN(auto channel, MakeChannel(address, security, std::move(observer)));
  if (group == nullptr) group = std::make_shared<TrainerGroup>();
  return std::make_shared<GrpcTrainerClient>(incarnation, timeout, channel, std::move(group));
}

}  // namespace tandem
