#include "trainer_worker/grpc_sample_stream.h"

#include <map>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/net/call_deadline.h"
#include "common/net/grpc_status.h"
#include "common/net/worker_codec.h"
#include "tandem/v1/controller.grpc.pb.h"

namespace tandem {
namespace {

// Keeps a message far below gRPC's limit of 4 MiB, whatever the encoded size of its integers.
constexpr size_t kLogProbsPerMessage = 200'000;

class GrpcSampleStream : public SampleStream {
 public:
  GrpcSampleStream(ControllerConnector connect, v1::WorkerId worker, absl::Duration limit)
      : connect_(std::move(connect)), worker_(std::move(worker)), limit_(limit) {}

  absl::StatusOr<std::vector<Sample>> Pull(int64_t step, int64_t mini_batch) override {
    v1::StreamSamplesRequest request;
    request.set_mini_batch(mini_batch);
    return Stream(step, std::move(request));
  }

  absl::StatusOr<std::vector<Sample>> PullProbe(int64_t step) override {
    v1::StreamSamplesRequest request;
    request.set_probe(true);
    return Stream(step, std::move(request));
  }

  absl::Status PutLogProbs(int64_t step,
                           const std::string& policy,
                           const LogProbsBySample& log_probs) override {
    TANDEM_RETURN_IF_ERROR(Connect());
    grpc::ClientContext context;
    CallDeadline deadline(context, limit_);
    const OutsideWait wait;
    v1::PutLogProbsResponse response;
    const auto writer = stub_->PutLogProbs(&context, &response);
    v1::PutLogProbsRequest request = Header(step, policy);
    size_t pending = 0;
    bool open = true;
    // Samples are sent in order of sample id, so that two runs send the same messages.
    for (const auto& [id, values] : std::map(log_probs.begin(), log_probs.end())) {
      v1::PutLogProbsRequest::Item* item = request.add_items();
      item->set_sample_id(id);
      item->mutable_log_probs()->Add(values.begin(), values.end());
      pending += values.size() + 4;
      if (pending < kLogProbsPerMessage) continue;
      open = writer->Write(request);
      if (!open) break;
      request = Header(step, policy);
      pending = 0;
    }
    if (open && request.items_size() > 0) writer->Write(request);
    writer->WritesDone();
    return Annotate(Ended(deadline.Explain(writer->Finish())),
                    "sending log-probs to the controller");
  }

 private:
  absl::StatusOr<std::vector<Sample>> Stream(int64_t step, v1::StreamSamplesRequest request) {
    TANDEM_RETURN_IF_ERROR(Connect());
    grpc::ClientContext context;
    CallDeadline deadline(context, limit_);
    const OutsideWait wait;
    *request.mutable_worker() = worker_;
    request.set_step(step);
    const auto reader = stub_->StreamSamples(&context, request);
    std::vector<Sample> samples;
    v1::StreamSamplesResponse response;
    while (reader->Read(&response)) {
      deadline.Renew();
      for (const v1::Sample& sample : response.samples()) samples.push_back(FromProto(sample));
    }
    TANDEM_RETURN_IF_ERROR(Annotate(Ended(deadline.Explain(reader->Finish())),
                                    fmt::format("samples of step {} from the controller", step)));
    return samples;
  }

  absl::Status Connect() {
    if (stub_ != nullptr) return absl::OkStatus();
    TANDEM_ASSIGN_OR_RETURN(auto channel, connect_());
    stub_ = v1::ClusterService::NewStub(std::move(channel));
    return absl::OkStatus();
  }

  // Gives up the connection of a call that was not answered.
  absl::Status Ended(const grpc::Status& ended) {
    absl::Status status = FromServiceStatus(ended);
    if (!status.ok() && !AnsweredByWorker(status)) stub_.reset();
    return status;
  }

  v1::PutLogProbsRequest Header(int64_t step, const std::string& policy) const {
    v1::PutLogProbsRequest request;
    *request.mutable_worker() = worker_;
    request.set_step(step);
    request.set_policy(policy);
    return request;
  }

  const ControllerConnector connect_;
  std::unique_ptr<v1::ClusterService::Stub> stub_;
  const v1::WorkerId worker_;
  const absl::Duration limit_;
};

}  // namespace

std::unique_ptr<SampleStream> MakeGrpcSampleStream(ControllerConnector connect,
                                                   const v1::WorkerId& worker,
                                                   absl::Duration limit) {
  return std::make_unique<GrpcSampleStream>(std::move(connect), worker, limit);
}

}  // namespace tandem
