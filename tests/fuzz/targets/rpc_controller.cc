// Every request that users and workers may send to the controller, to its services around a run of
// fakes. The input is a sequence of calls: which one, then its message.
#include <algorithm>
#include <memory>
#include <string>

#include "common/net/worker_codec.h"
#include "controller/api/cluster_service.h"
#include "controller/api/tandem_service.h"
#include "tests/fakes/fake_run.h"
#include "tests/fuzz/message_builder.h"
#include "tests/fuzz/target.h"

namespace tandem::fuzz {
namespace {

// A run that has ended: what would wait for its next step is answered.
class EndedRun {
 public:
  EndedRun() : run_(1) {
    run_.Prepare(StartMode::kPaused);
    run_.control->OnStarted(1, 1);
    run_.control->OnEnded(absl::OkStatus());
    cluster_ = std::make_unique<ClusterService>(run_.registry, *run_.samples, run_.probe,
                                                v1::RegisterResponse(), "");
    tandem_ = std::make_unique<TandemService>(
        TandemServiceParts{*run_.control, run_.loop->position(), *run_.parts, run_.options,
                           run_.registry, relay_, "fuzz", ""});
  }

  void Call(ByteSource& source) {
    switch (source.Byte() % 14) {
      case 0:
        return To<v1::GetStatusRequest, v1::GetStatusResponse>(source, &TandemService::GetStatus);
      case 1:
        return To<v1::RunRequest, v1::Operation>(source, &TandemService::Run);
      case 2:
        return To<v1::StepRequest, v1::Operation>(source, &TandemService::Step);
      case 3:
        return To<v1::PauseRequest, v1::PauseResponse>(source, &TandemService::Pause);
      case 4:
        return To<v1::ResumeRequest, v1::ResumeResponse>(source, &TandemService::Resume);
      case 5:
        return To<v1::StopRequest, v1::StopResponse>(source, &TandemService::Stop);
      case 6: {
        auto request = Made<v1::WaitOperationRequest>(source);
        request.set_timeout_seconds(std::min(request.timeout_seconds(), 0.0));  // NaN stays
        v1::Operation response;
        (void)tandem_->WaitOperation(nullptr, &request, &response);
        return;
      }
      case 7:
        return To<v1::ListStepsRequest, v1::ListStepsResponse>(source, &TandemService::ListSteps);
      case 8:
        return To<v1::ListSamplesRequest, v1::ListSamplesResponse>(source,
                                                                   &TandemService::ListSamples);
      case 9:
        return To<v1::UserGenerateRequest, v1::UserGenerateResponse>(source,
                                                                     &TandemService::Generate);
      case 10:
        return To<v1::EvaluateRequest, v1::EvaluateResponse>(source, &TandemService::Evaluate);
      case 11:
        return To<v1::CheckRequest, v1::CheckResponse>(source, &TandemService::CheckWeights);
      case 12: {
        const auto request = Made<v1::RegisterRequest>(source);
        v1::RegisterResponse response;
        (void)cluster_->Register(nullptr, &request, &response);
        return;
      }
      default: {
        const auto request = Made<v1::HeartbeatRequest>(source);
        v1::HeartbeatResponse response;
        (void)cluster_->Heartbeat(nullptr, &request, &response);
      }
    }
  }

 private:
  template <typename Request, typename Response>
  void To(ByteSource& source,
          grpc::Status (TandemService::*method)(grpc::ServerContext*, const Request*, Response*)) {
    const auto request = Made<Request>(source);
    Response response;
    (void)(*tandem_.*method)(nullptr, &request, &response);
  }

  testing::FakeRun run_;
  ProgressRelay relay_{{}};
  std::unique_ptr<ClusterService> cluster_;
  std::unique_ptr<TandemService> tandem_;
};

}  // namespace
}  // namespace tandem::fuzz

TANDEM_FUZZ_TARGET(rpc_controller) {
  // A run is made anew now and then: it remembers the requests that it has answered.
  static std::unique_ptr<tandem::fuzz::EndedRun> run;
  static int calls = 0;
  if (run == nullptr || calls++ % 1000 == 0) run = std::make_unique<tandem::fuzz::EndedRun>();
  tandem::fuzz::ByteSource source(input);
  for (int i = 0; i < 8 && !source.empty(); ++i) run->Call(source);
}
