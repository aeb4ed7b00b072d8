#include "controller/workers/trainer_client.h"

#include <atomic>
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

class GrpcTrainerClient : public TrainerClient {
 public:
  GrpcTrainerClient(int64_t incarnation,
                    absl::Duration timeout,
                    const std::shared_ptr<grpc::Channel>& channel)
      : incarnation_(incarnation), timeout_(timeout), stub_(v1::TrainerService::NewStub(channel)) {}

  absl::Status Reset(const ResetCall& command) override {
    v1::TrainerResetRequest request;
    request.set_generation(command.generation);
    request.set_world_size(command.world_size);
    request.set_rendezvous(command.rendezvous);
    request.set_checkpoint_dir(command.checkpoint_dir);
    request.set_version(command.version);
    request.set_step(LogStep());
    generation_ = command.generation;
    return Call<v1::TrainerResetResponse>(&v1::TrainerService::Stub::Reset, request).status();
  }

  absl::StatusOr<ForwardBackwardReply> ForwardBackward(
      const ForwardBackwardCall& command) override {
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
    TANDEM_ASSIGN_OR_RETURN(
        const auto response,
        Call<v1::ForwardBackwardResponse>(&v1::TrainerService::Stub::ForwardBackward, request));
    return ToResult(response);
  }

  absl::StatusOr<OptimizerStepReply> OptimizerStep(int64_t version) override {
    v1::OptimizerStepRequest request;
    request.set_version(version);
    TANDEM_ASSIGN_OR_RETURN(
        const auto response,
        Call<v1::OptimizerStepResponse>(&v1::TrainerService::Stub::OptimizerStep, request));
    return OptimizerStepReply{.grad_norm = response.grad_norm(),
                              .learning_rate = response.learning_rate(),
                              .skipped = response.skipped(),
                              .report = FromProto(response.report())};
  }

  absl::StatusOr<LogProbsReply> ComputeLogProbs(int64_t step, ScoredPolicy policy) override {
    v1::ComputeLogProbsRequest request;
    request.set_step(step);
    request.set_policy(PolicyToProto(policy));
    TANDEM_ASSIGN_OR_RETURN(
        const auto response,
        Call<v1::ComputeLogProbsResponse>(&v1::TrainerService::Stub::ComputeLogProbs, request));
    return LogProbsReply{.comparison = ComparisonFromProto(response.comparison()),
                         .report = FromProto(response.report())};
  }

  absl::StatusOr<SyncReply> SyncWeights(const SyncCall& command) override {
    v1::SyncWeightsRequest request;
    request.set_version(command.version);
    request.mutable_target_ranks()->Add(command.senders.begin(), command.senders.end());
    request.set_rollout_address(command.rollout_address);
    request.set_rollout_incarnation(command.rollout_incarnation);
    request.set_scramble(command.scramble);
    TANDEM_ASSIGN_OR_RETURN(
        const auto response,
        Call<v1::SyncWeightsResponse>(&v1::TrainerService::Stub::SyncWeights, request));
    return SyncReply{.bytes = response.bytes(),
                     .buckets = response.buckets(),
                     .tensors = response.tensors(),
                     .seconds = response.seconds(),
                     .changed_share = response.changed_share(),
                     .digest = response.digest(),
                     .report = FromProto(response.report())};
  }

  absl::StatusOr<WeightCheckResult> CheckWeights(const std::string& rollout_address,
                                                 const std::string& hf_checkpoint) override {
    v1::CheckWeightsRequest request;
    request.set_rollout_address(rollout_address);
    request.set_hf_checkpoint(hf_checkpoint);
    TANDEM_ASSIGN_OR_RETURN(
        const auto response,
        Call<v1::CheckWeightsResponse>(&v1::TrainerService::Stub::CheckWeights, request));
    return WeightCheckResult{
        .version = response.version(),
        .expected = response.expected(),
        .checked = response.checked(),
        .missing = response.missing(),
        .unexpected = response.unexpected(),
        .mismatched = response.mismatched(),
        .first_difference = response.first_difference(),
        .differing = {response.differing().begin(), response.differing().end()},
        .report = FromProto(response.report())};
  }

  absl::StatusOr<SaveReply> SaveState(const std::string& directory, int64_t version) override {
    v1::SaveStateRequest request;
    request.set_directory(directory);
    request.set_version(version);
    TANDEM_ASSIGN_OR_RETURN(
        const auto response,
        Call<v1::SaveStateResponse>(&v1::TrainerService::Stub::SaveState, request));
    return SaveReply{.bytes = response.bytes(), .report = FromProto(response.report())};
  }

  absl::Status Shutdown() override {
    v1::TrainerShutdownResponse response;
    return calls_.Run(absl::Seconds(10),
                      [&](auto* c) { return stub_->Shutdown(c, {}, &response); });
  }

  void CancelAll() override { calls_.CancelAll(); }
  int64_t incarnation() const override { return incarnation_; }

 private:
  template <typename Response, typename Request>
  absl::StatusOr<Response> Call(grpc::Status (v1::TrainerService::Stub::*method)(
                                    grpc::ClientContext*, const Request&, Response*),
                                Request request) {
    request.set_incarnation(incarnation_);
    request.set_generation(generation_);
    Response response;
    TANDEM_RETURN_IF_ERROR(calls_.Run(timeout_, [&](grpc::ClientContext* context) {
      return (stub_.get()->*method)(context, request, &response);
    }));
    return response;
  }

  const int64_t incarnation_;
  std::atomic<int64_t> generation_{0};  // of the last Reset
  const absl::Duration timeout_;
  const std::unique_ptr<v1::TrainerService::Stub> stub_;
  CallTracker calls_;
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
    std::shared_ptr<CallObserver> observer) {
  TANDEM_ASSIGN_OR_RETURN(auto channel, MakeChannel(address, security, std::move(observer)));
  return std::make_shared<GrpcTrainerClient>(incarnation, timeout, channel);
}

}  // namespace tandem
