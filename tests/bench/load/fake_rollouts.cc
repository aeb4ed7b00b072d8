#include "tests/bench/load/fake_rollouts.h"

#include <vector>

#include <grpcpp/grpcpp.h>

#include "tandem/v1/rollout.grpc.pb.h"

namespace tandem::testing {
namespace {

constexpr int kIds = 200;  // of the tiny tokenizer, which has more

v1::Sample MakeSample(const v1::GenerateRequest& request, int index) {
  v1::Sample sample;
  const uint64_t id = request.sample_ids(index);
  sample.set_sample_id(id);
  sample.set_group(request.group());
  sample.set_index(index);
  *sample.mutable_tokens() = request.prompt();
  sample.set_prompt_tokens(request.prompt_size());
  sample.set_temperature(request.params().temperature());
  sample.set_finish_reason(v1::FINISH_REASON_LENGTH);
  v1::Segment& prompt = *sample.add_segments();
  prompt.set_length(request.prompt_size());
  v1::Segment& response = *sample.add_segments();
  response.set_begin(request.prompt_size());
  response.set_length(request.params().max_tokens());
  response.set_trained(true);
  response.set_weight_version(request.version());
  for (int64_t t = 0; t < request.params().max_tokens(); ++t) {
    const uint64_t mixed = (id + 1) * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(t) * 7;
    sample.add_tokens(static_cast<int32_t>((mixed >> 40) % kIds));
    sample.add_log_probs(-1.0f);
    sample.add_versions(request.version());
  }
  return sample;
}

// Sends the samples of a request one after another, and deletes itself at the end.
class GenerateWriter final : public grpc::ServerWriteReactor<v1::GenerateEvent> {
 public:
  explicit GenerateWriter(const v1::GenerateRequest& request) {
    for (int i = 0; i < request.sample_ids_size(); ++i) {
      *events_.emplace_back().mutable_finished() = MakeSample(request, i);
    }
    Next();
  }
  void OnWriteDone(bool ok) override { ok ? Next() : Finish(grpc::Status::CANCELLED); }
  void OnDone() override { delete this; }

 private:
  void Next() {
    if (sent_ == events_.size()) return Finish(grpc::Status::OK);
    StartWrite(&events_[sent_++]);
  }

  std::vector<v1::GenerateEvent> events_;
  size_t sent_ = 0;
};

class FakeRollouts final : public v1::RolloutService::CallbackService {
  using Context = grpc::CallbackServerContext;

  static grpc::ServerUnaryReactor* Answer(Context* context) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerWriteReactor<v1::GenerateEvent>* Generate(
      Context*, const v1::GenerateRequest* request) override {
    return new GenerateWriter(*request);
  }
  grpc::ServerUnaryReactor* Abort(Context* context,
                                  const v1::AbortRequest*,
                                  v1::AbortResponse*) override {
    return Answer(context);
  }
  grpc::ServerUnaryReactor* Sleep(Context* context,
                                  const v1::SleepRequest*,
                                  v1::SleepResponse* response) override {
    response->mutable_report()->set_phase("sleep");
    response->mutable_generate()->set_phase("generate");
    return Answer(context);
  }
  grpc::ServerUnaryReactor* Wake(Context* context,
                                 const v1::WakeRequest*,
                                 v1::WakeResponse* response) override {
    response->mutable_report()->set_phase("wake");
    return Answer(context);
  }
  grpc::ServerUnaryReactor* AbortUpdate(Context* context,
                                        const v1::AbortUpdateRequest*,
                                        v1::AbortUpdateResponse*) override {
    return Answer(context);
  }
  grpc::ServerUnaryReactor* VerifyWeights(Context* context,
                                          const v1::VerifyWeightsRequest*,
                                          v1::VerifyWeightsResponse* response) override {
    response->mutable_report()->set_phase("verify");
    return Answer(context);
  }
  grpc::ServerUnaryReactor* GetStatus(Context* context,
                                      const v1::RolloutStatusRequest*,
                                      v1::RolloutStatusResponse*) override {
    return Answer(context);
  }
  grpc::ServerUnaryReactor* Shutdown(Context* context,
                                     const v1::RolloutShutdownRequest*,
                                     v1::RolloutShutdownResponse*) override {
    return Answer(context);
  }
};

}  // namespace

std::unique_ptr<grpc::Service> MakeFakeRollouts() { return std::make_unique<FakeRollouts>(); }

}  // namespace tandem::testing
