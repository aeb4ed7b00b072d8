#include "controller/workers/rollout_client.h"

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/net/call_deadline.h"
#include "common/net/call_tracker.h"
#include "common/net/callback_threads.h"
#include "common/net/channel.h"
#include "common/net/grpc_status.h"
#include "common/net/worker_codec.h"
#include "tandem/v1/rollout.grpc.pb.h"

namespace tandem {
namespace {

constexpr absl::Duration kShort = absl::Seconds(10);

// Reads one Generate stream and deletes itself at its end.
class GenerateReader : public grpc::ClientReadReactor<v1::GenerateEvent> {
 public:
  GenerateReader(std::shared_ptr<CallTracker> calls,
                 std::function<void(Sample)> on_sample,
                 std::function<void(absl::Status)> on_done)
      : calls_(std::move(calls)), on_sample_(std::move(on_sample)), on_done_(std::move(on_done)) {}

  void Start(v1::RolloutService::Stub* stub, v1::GenerateRequest request, absl::Duration timeout) {
    KeepCallbackThreads();
    request_ = std::move(request);
    silence_.emplace(context_, timeout);
    calls_->Add(&context_);
    stub->async()->Generate(&context_, &request_, this);
    StartRead(&event_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    silence_->Renew();
    if (event_.has_finished()) on_sample_(FromProto(event_.finished()));
    StartRead(&event_);
  }

  void OnDone(const grpc::Status& status) override {
    calls_->Remove(&context_);
    on_done_(FromServiceStatus(silence_->Explain(status)));
    delete this;
  }

 private:
  const std::shared_ptr<CallTracker> calls_;
  const std::function<void(Sample)> on_sample_;
  const std::function<void(absl::Status)> on_done_;
  grpc::ClientContext context_;
  std::optional<CallDeadline> silence_;  // the longest time between two events
  v1::GenerateRequest request_;
  v1::GenerateEvent event_;
};

auto StatusOnly(StatusDone done) {
  return [done = std::move(done)](const auto& response) { done(response.status()); };
}
// Takes `result_of(response)` to `done`.
template <typename Result, typename ResultOf>
auto ConvertedBy(Done<Result> done, ResultOf result_of) {
  return [done = std::move(done), result_of](const auto& response) {
    done(response.ok() ? absl::StatusOr<Result>(result_of(*response))
                       : absl::StatusOr<Result>(response.status()));
  };
}
auto Report(Done<PhaseReport> done) {
  return ConvertedBy(std::move(done),
                     [](const auto& response) { return FromProto(response.report()); });
}

class GrpcRolloutClient : public RolloutClient {
 public:
  GrpcRolloutClient(std::string address,
                    int64_t incarnation,
                    absl::Duration timeout,
                    const std::shared_ptr<grpc::Channel>& channel,
                    std::shared_ptr<TrainerGroup> group)
      : address_(std::move(address)),
        incarnation_(incarnation),
        timeout_(timeout),
        group_(std::move(group)),
        stub_(v1::RolloutService::NewStub(channel)) {}

  void Generate(const GroupRequest& request,
                std::function<void(Sample)> on_sample,
                StatusDone on_done) override {
    v1::GenerateRequest proto;
    proto.set_incarnation(incarnation_);
    proto.set_request_id(request.request_id);
    proto.set_version(request.version);
    proto.mutable_prompt()->Add(request.prompt.begin(), request.prompt.end());
    proto.mutable_sample_ids()->Add(request.sample_ids.begin(), request.sample_ids.end());
    *proto.mutable_params() = ToProto(request.params);
    proto.set_group(request.group);
    proto.set_step(LogStep());
    proto.set_log_probs(request.log_probs);
    for (const Continuation& continuation : request.continued) {
      *proto.add_continued() = ToProto(continuation);
    }
    auto* reader = new GenerateReader(calls_, std::move(on_sample), std::move(on_done));
    reader->Start(stub_.get(), std::move(proto), timeout_);
  }

  void Abort(const std::vector<std::string>& request_ids, StatusDone done) override {
    v1::AbortRequest request;
    request.set_incarnation(incarnation_);
    for (const std::string& id : request_ids) request.add_request_ids(id);
    Call<v1::AbortResponse>(&Calls::Abort, kShort, std::move(request), StatusOnly(std::move(done)));
  }

  void Sleep(SleepMode mode, Done<SleepReports> done) override {
    v1::SleepRequest request;
    request.set_incarnation(incarnation_);
    request.set_step(LogStep());
    request.set_level(mode == SleepMode::kLevel2 ? 2 : 1);
    request.set_drain_only(mode == SleepMode::kDrainOnly);
    Call<v1::SleepResponse>(
        &Calls::Sleep, timeout_, std::move(request),
        ConvertedBy(std::move(done), [](const v1::SleepResponse& response) {
          return SleepReports{FromProto(response.generate()), FromProto(response.report())};
        }));
  }

  void Wake(const std::vector<std::string>& tags, Done<PhaseReport> done) override {
    v1::WakeRequest request;
    request.set_incarnation(incarnation_);
    request.set_step(LogStep());
    request.set_group_generation(group_->generation);
    for (const std::string& tag : tags) request.add_tags(tag);
    Call<v1::WakeResponse>(&Calls::Wake, timeout_, std::move(request), Report(std::move(done)));
  }

  void VerifyWeights(int64_t version, Done<PhaseReport> done) override {
    v1::VerifyWeightsRequest request;
    request.set_incarnation(incarnation_);
    request.set_version(version);
    request.set_step(LogStep());
    Call<v1::VerifyWeightsResponse>(&Calls::VerifyWeights, timeout_, std::move(request),
                                    Report(std::move(done)));
  }

  void PrefilledTokens(Done<int64_t> done) override {
    Call<v1::RolloutStatusResponse>(
        &Calls::GetStatus, kShort, v1::RolloutStatusRequest(),
        ConvertedBy(std::move(done), [](const v1::RolloutStatusResponse& response) {
          return int64_t{response.prefill_tokens()};
        }));
  }

  void AbortUpdate(const std::string& reason, StatusDone done) override {
    v1::AbortUpdateRequest request;
    request.set_incarnation(incarnation_);
    request.set_version(-1);
    request.set_reason(reason);
    request.set_group_generation(group_->generation);
    Call<v1::AbortUpdateResponse>(&Calls::AbortUpdate, timeout_, std::move(request),
                                  StatusOnly(std::move(done)));
  }

  void Shutdown(StatusDone done) override {
    Call<v1::RolloutShutdownResponse>(&Calls::Shutdown, kShort, v1::RolloutShutdownRequest(),
                                      StatusOnly(std::move(done)));
  }

  void CancelAll() override { calls_->CancelAll(); }
  std::string address() const override { return address_; }
  int64_t incarnation() const override { return incarnation_; }

 private:
  using Calls = v1::RolloutService::StubInterface::async_interface;
  template <typename Request, typename Response>
  using Method = void (Calls::*)(grpc::ClientContext*,
                                 const Request*,
                                 Response*,
                                 std::function<void(grpc::Status)>);

  template <typename Response, typename Request, typename Then>
  void Call(Method<Request, Response> method, absl::Duration timeout, Request request, Then then) {
    StartCall(calls_, timeout, stub_->async(), method, std::move(request), std::move(then));
  }

  const std::string address_;
  const int64_t incarnation_;
  const absl::Duration timeout_;
  const std::shared_ptr<TrainerGroup> group_;
  const std::unique_ptr<v1::RolloutService::Stub> stub_;
  // Shared with calls, which may outlive this client.
  const std::shared_ptr<CallTracker> calls_ = std::make_shared<CallTracker>();
};
}  // namespace

absl::Status RolloutClient::Unimplemented(const char* call) {
  return MakeStatus(absl::StatusCode::kUnimplemented,
                    "this client of a rollout does not implement the call {}", call);
}

absl::StatusOr<std::shared_ptr<RolloutClient>> MakeGrpcRolloutClient(
    const std::string& address,
    int64_t incarnation,
    absl::Duration timeout,
    const RpcSecurity& security,
    std::shared_ptr<CallObserver> observer,
    std::shared_ptr<TrainerGroup> group) {
  TANDEM_ASSIGN_OR_RETURN(auto channel, MakeChannel(address, security, std::move(observer)));
  if (group == nullptr) group = std::make_shared<TrainerGroup>();
  return std::make_shared<GrpcRolloutClient>(address, incarnation, timeout, channel,
                                             std::move(group));
}

}  // namespace tandem
