// Every request that users and workers may send to the controller, to its services around a run of
// fakes. The input is a sequence of calls: which one, then its message.
#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "common/net/protocol.h"
#include "common/net/worker_codec.h"
#include "controller/api/agent_service.h"
#include "controller/api/cluster_service.h"
#include "controller/api/tandem_service.h"
#include "controller/workers/rank_holders.h"
#include "tests/fakes/fake_run.h"
#include "tests/fuzz/call_table.h"
#include "tests/fuzz/in_process_server.h"
#include "tests/fuzz/message_builder.h"
#include "tests/fuzz/target.h"

namespace tandem::fuzz {
namespace {

// A run that has ended: what would wait for its next step is answered.
class EndedRun {
 public:
  EndedRun() : run_(1) {
    SetLogLevel(LogLevel::kError);  // a line for each refused call would take longer than the call
    run_.Prepare(StartMode::kPaused);
    run_.control->OnStarted(1, 1);
    run_.control->OnEnded(absl::OkStatus());
    cluster_ = std::make_unique<ClusterService>(run_.registry, holders_, *run_.samples,
                                                run_.upcoming.get(), run_.probe,
                                                v1::RegisterResponse(), ThreadsByRole{}, "");
    agent_service_ = std::make_unique<AgentService>(agents_, run_.registry, [](const auto&) {});
    tandem_ = std::make_unique<TandemService>(
        TandemServiceParts{*run_.control, run_.loop->position(), *run_.parts, run_.options,
                           run_.registry, relay_, "fuzz", "", nullptr, &agents_});
    agent_server_ = std::make_unique<InProcessServer>(agent_service_.get());
    agent_stub_ = v1::AgentService::NewStub(agent_server_->channel());
    server_ = std::make_unique<InProcessServer>(cluster_.get());
    cluster_stub_ = v1::ClusterService::NewStub(server_->channel());
    PutSample();
    calls_.emplace(v1::RunRequest::descriptor()->file(), MakeCalls());
  }

  void Call(ByteSource& source) const { calls_->CallOne(source); }

 private:
  using Calls = std::vector<CallTable::Entry>;

  Calls MakeCalls() {
    return {Unary("TandemService.GetStatus", *tandem_, &TandemService::GetStatus),
            Unary("TandemService.Run", *tandem_, &TandemService::Run),
            Unary("TandemService.Step", *tandem_, &TandemService::Step),
            Unary("TandemService.Pause", *tandem_, &TandemService::Pause),
            Unary("TandemService.Resume", *tandem_, &TandemService::Resume),
            Unary("TandemService.Stop", *tandem_, &TandemService::Stop),
            {"TandemService.WaitOperation", [this](ByteSource& source) { WaitOperation(source); }},
            Unary("TandemService.ListSteps", *tandem_, &TandemService::ListSteps),
            Unary("TandemService.ListSamples", *tandem_, &TandemService::ListSamples),
            Unary("TandemService.Generate", *tandem_, &TandemService::Generate),
            Unary("TandemService.Evaluate", *tandem_, &TandemService::Evaluate),
            Unary("TandemService.CheckWeights", *tandem_, &TandemService::CheckWeights),
            {"AgentService.Heartbeat", [this](ByteSource& source) { AgentHeartbeat(source); }},
            ClusterUnary("ClusterService.Register", &v1::ClusterService::Stub::Register),
            ClusterUnary("ClusterService.Heartbeat", &v1::ClusterService::Stub::Heartbeat),
            {"ClusterService.StreamSamples", [this](ByteSource& source) { StreamSamples(source); }},
            {"ClusterService.PutLogProbs", [this](ByteSource& source) { PutLogProbs(source); }}};
  }

  template <typename Service, typename Request, typename Response>
  static CallTable::Entry Unary(const std::string& name,
                                Service& service,
                                grpc::Status (Service::*method)(grpc::ServerContext*,
                                                                const Request*,
                                                                Response*)) {
    return {name, [&service, method](ByteSource& source) {
              const auto request = Made<Request>(source);
              Response response;
              (void)(service.*method)(nullptr, &request, &response);
            }};
  }

  template <typename Request, typename Response>
  CallTable::Entry ClusterUnary(const std::string& name,
                                grpc::Status (v1::ClusterService::Stub::*method)(
                                    grpc::ClientContext*, const Request&, Response*)) {
    return {name, [this, method](ByteSource& source) {
              grpc::ClientContext context;
              Response response;
              (void)(cluster_stub_.get()->*method)(&context, Made<Request>(source), &response);
            }};
  }

  // Mostly of the one host that the run has.
  void AgentHeartbeat(ByteSource& source) {
    auto request = Made<v1::AgentHeartbeatRequest>(source);
    if (source.Byte() < 0xE0) {
      request.set_protocol(kProtocolVersion);
      request.set_node("a");
      request.set_hosts(1);
      request.set_host_index(0);
    }
    grpc::ClientContext context;
    v1::AgentHeartbeatResponse response;
    (void)agent_stub_->Heartbeat(&context, request, &response);
  }

  void WaitOperation(ByteSource& source) {
    auto request = Made<v1::WaitOperationRequest>(source);
    request.set_timeout_seconds(std::min(request.timeout_seconds(), 0.0));  // NaN stays
    v1::Operation response;
    (void)tandem_->WaitOperation(nullptr, &request, &response);
  }

  void StreamSamples(ByteSource& source) {
    auto request = Made<v1::StreamSamplesRequest>(source);
    Steer(source, "step", kStep, &request);
    SteerWorker(source, request.mutable_worker());
    grpc::ClientContext context;
    const auto reader = cluster_stub_->StreamSamples(&context, request);
    v1::StreamSamplesResponse response;
    while (reader->Read(&response)) {
    }
    (void)reader->Finish();
  }

  void PutLogProbs(ByteSource& source) {
    grpc::ClientContext context;
    v1::PutLogProbsResponse response;
    const auto writer = cluster_stub_->PutLogProbs(&context, &response);
    const int messages = 1 + source.Byte() % 3;
    for (int i = 0; i < messages; ++i) {
      auto request = Made<v1::PutLogProbsRequest>(source);
      Steer(source, "step", kStep, &request);
      SteerWorker(source, request.mutable_worker());
      constexpr const char* kPolicies[] = {"current", "reference", "sum_pi_squared", "training",
                                           "probe"};
      const size_t policy = source.Byte() % 8;
      if (policy < std::size(kPolicies)) request.set_policy(kPolicies[policy]);
      if (!writer->Write(request)) break;
    }
    writer->WritesDone();
    (void)writer->Finish();
  }

  // What trainers may pull and score.
  void PutSample() {
    Sample sample;
    sample.sample_id = 7;
    sample.tokens = {1, 2, 3, 4};
    sample.prompt_tokens = 2;
    sample.log_probs = {-0.5f, -0.25f};
    sample.versions = {1, 1};
    absl::Status put = run_.samples->BeginStep(kStep);
    if (put.ok()) put = run_.samples->Put(sample, 1);
    if (!put.ok()) throw std::runtime_error(put.ToString());
    run_.samples->Assign(sample.sample_id, 0, 0);
    (void)run_.probe.Begin(kStep, 1);
  }

  // The trainer that the fake run has, as it is now.
  void SteerWorker(ByteSource& source, v1::WorkerId* worker) {
    const auto trainer = run_.registry.Find({WorkerRole::kTrainer, 0});
    if (!trainer || source.Byte() >= 0xE0) return;
    worker->set_role(v1::ROLE_TRAINER);
    worker->set_rank(0);
    worker->set_incarnation(trainer->incarnation);
  }

  static constexpr int64_t kStep = 1;  // the one that the store has a sample of

  testing::FakeRun run_;
  RankHolders holders_{run_.dir.path()};
  ProgressRelay relay_{{}};
  AgentRegistry agents_{{.allow_other_build = true}, RealClock()};
  std::unique_ptr<AgentService> agent_service_;
  std::unique_ptr<ClusterService> cluster_;
  std::unique_ptr<TandemService> tandem_;
  std::unique_ptr<InProcessServer> server_;
  std::unique_ptr<v1::ClusterService::Stub> cluster_stub_;
  std::unique_ptr<InProcessServer> agent_server_;
  std::unique_ptr<v1::AgentService::Stub> agent_stub_;
  std::optional<CallTable> calls_;
};

}  // namespace
}  // namespace tandem::fuzz

TANDEM_FUZZ_TARGET(rpc_controller) {
  // A run is made anew now and then: it remembers the requests that it has answered.
  static std::unique_ptr<tandem::fuzz::EndedRun> run;
  static int calls = 0;
  if (run == nullptr || calls++ % 1000 == 0) run = std::make_unique<tandem::fuzz::EndedRun>();
  tandem::fuzz::FeedCalls(input, *run);
}
