#include "tests/bench/load/fake_trainers.h"

#include <utility>

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include "tandem/v1/controller.grpc.pb.h"
#include "tandem/v1/trainer.grpc.pb.h"

namespace tandem::testing {
namespace {

// Fetches the samples of a mini-batch, answers the trainer's call, and deletes itself.
class SampleReader final : public grpc::ClientReadReactor<v1::StreamSamplesResponse> {
 public:
  SampleReader(const FakeTrainer& trainer,
               const v1::ForwardBackwardRequest& call,
               v1::ForwardBackwardResponse* response,
               grpc::ServerUnaryReactor* answer)
      : stub_(v1::ClusterService::NewStub(trainer.controller)),
        compare_(call.compare_log_probs()),
        response_(response),
        answer_(answer) {
    v1::WorkerId& worker = *request_.mutable_worker();
    worker.set_role(v1::ROLE_TRAINER);
    worker.set_rank(trainer.rank);
    worker.set_incarnation(call.incarnation());
    request_.set_step(call.step());
    request_.set_mini_batch(call.mini_batch());
    stub_->async()->StreamSamples(&context_, &request_, this);
    StartRead(&message_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    for (const v1::Sample& sample : message_.samples()) {
      tokens_ += sample.tokens_size();
      responses_ += sample.tokens_size() - sample.prompt_tokens();
    }
    StartRead(&message_);
  }

  void OnDone(const grpc::Status& status) override {
    response_->set_tokens(tokens_);
    response_->set_micro_batches(1);
    response_->mutable_report()->set_phase("train");
    (*response_->mutable_metrics())["actor/pg_loss"] = 0;
    if (compare_) {
      response_->mutable_comparison()->set_compared_tokens(responses_);
      response_->mutable_comparison()->set_identical_tokens(responses_);
    }
    answer_->Finish(status);
    delete this;
  }

 private:
  const std::unique_ptr<v1::ClusterService::Stub> stub_;
  const bool compare_;
  v1::ForwardBackwardResponse* const response_;
  grpc::ServerUnaryReactor* const answer_;
  grpc::ClientContext context_;
  v1::StreamSamplesRequest request_;
  v1::StreamSamplesResponse message_;
  int64_t tokens_ = 0, responses_ = 0;
};

class FakeTrainers final : public v1::TrainerService::CallbackService {
 public:
  explicit FakeTrainers(std::function<FakeTrainer(int64_t)> trainer_of)
      : trainer_of_(std::move(trainer_of)) {}

 private:
  using Context = grpc::CallbackServerContext;

  static grpc::ServerUnaryReactor* Answer(Context* context) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerUnaryReactor* Reset(Context* context,
                                  const v1::TrainerResetRequest* request,
                                  v1::TrainerResetResponse* response) override {
    response->set_version(request->version());
    response->set_parameters(1);
    response->set_shard_parameters(1);
    return Answer(context);
  }
  grpc::ServerUnaryReactor* ForwardBackward(Context* context,
                                            const v1::ForwardBackwardRequest* request,
                                            v1::ForwardBackwardResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    new SampleReader(trainer_of_(request->incarnation()), *request, response, reactor);
    return reactor;
  }
  grpc::ServerUnaryReactor* OptimizerStep(Context* context,
                                          const v1::OptimizerStepRequest*,
                                          v1::OptimizerStepResponse* response) override {
    response->set_grad_norm(1);
    response->set_learning_rate(1e-6);
    response->mutable_report()->set_phase("optimize");
    return Answer(context);
  }
  grpc::ServerUnaryReactor* SyncWeights(Context* context,
                                        const v1::SyncWeightsRequest* request,
                                        v1::SyncWeightsResponse* response) override {
    response->set_tensors(1);
    response->set_digest(fmt::format("{:032x}", request->version()));
    response->mutable_report()->set_phase("sync");
    return Answer(context);
  }
  grpc::ServerUnaryReactor* SaveState(Context* context,
                                      const v1::SaveStateRequest*,
                                      v1::SaveStateResponse* response) override {
    response->mutable_report()->set_phase("save");
    return Answer(context);
  }
  grpc::ServerUnaryReactor* GetStatus(Context* context,
                                      const v1::TrainerStatusRequest*,
                                      v1::TrainerStatusResponse*) override {
    return Answer(context);
  }
  grpc::ServerUnaryReactor* Shutdown(Context* context,
                                     const v1::TrainerShutdownRequest*,
                                     v1::TrainerShutdownResponse*) override {
    return Answer(context);
  }

  const std::function<FakeTrainer(int64_t)> trainer_of_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeFakeTrainers(
    std::function<FakeTrainer(int64_t incarnation)> trainer_of) {
  return std::make_unique<FakeTrainers>(std::move(trainer_of));
}

}  // namespace tandem::testing
