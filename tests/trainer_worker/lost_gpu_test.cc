// A trainer whose GPU is lost reports it to its caller and to its own process, which ends.
#include <functional>
#include <memory>

#include "common/backend/cuda_backend.h"
#include "common/base/status.h"
#include "common/net/grpc_status.h"
#include "tandem/v1/trainer.grpc.pb.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/trainer_worker/trainer_rig.h"
#include "trainer_worker/engine_thread.h"
#include "trainer_worker/trainer_service.h"

namespace tandem {
namespace {

using namespace tandem::testing;
using emulator::EmulatedCuda;

// A trainer in a group of one, behind its service; calls bypass gRPC.
struct LosableTrainer {
  LosableTrainer() {
    options.session.model_dir = (dir.path() / "model").string();
    options.session.vocab_limit = TinyTokenizerSize();
    options.session.max_sequence_tokens = 128;
    options.session.max_micro_batch_tokens = 200;
    options.session.publish.slot_bytes = 1 << 14;
    const TinyModelOptions model = {.num_layers = 1,
                                    .num_heads = 2,
                                    .num_kv_heads = 1,
                                    .head_dim = 64,
                                    .intermediate_size = 64};
    REQUIRE(WriteTinyModel(options.session.model_dir, model).ok());
    options.backend = MakeCudaBackend(std::unique_ptr<CudaApi>(cuda), 0).value();
    samples.samples = samples.probe = RandomSamples(2, 3);
    trainer = Trainer::Create(options, &samples, [](const RolloutTarget&) {
                return absl::StatusOr<RolloutLink>(RolloutLink());
              }).value();
    v1::WorkerId worker;
    worker.set_incarnation(7);
    service->SetReady(trainer.get(), &engine, worker,
                      {.sockets = {dir.path()}, .loaded = {dir.path()}, .saved = {dir.path()}});
    v1::TrainerResetRequest reset = Request<v1::TrainerResetRequest>();
    REQUIRE(Reset(reset).ok());
  }

  v1::TrainerService::Service& calls() const {
    return static_cast<v1::TrainerService::Service&>(*service->service());
  }
  template <typename T>
  T Request() const {
    T request;
    request.set_incarnation(7);
    request.set_generation(2);
    return request;
  }
  grpc::Status Reset(v1::TrainerResetRequest request) {
    request.set_world_size(1);
    request.set_rendezvous((dir.path() / "group.sock").string());
    v1::TrainerResetResponse response;
    return calls().Reset(nullptr, &request, &response);
  }
  grpc::Status Train() {
    auto request = Request<v1::ForwardBackwardRequest>();
    request.set_step(1);
    request.set_version(trainer->status().version);
    request.set_mini_batches(1);
    request.set_global_tokens(static_cast<double>(TrainedTokens(samples.samples)));
    request.set_global_samples(std::ssize(samples.samples));
    v1::ForwardBackwardResponse response;
    return calls().ForwardBackward(nullptr, &request, &response);
  }
  grpc::Status Optimize() {
    auto request = Request<v1::OptimizerStepRequest>();
    request.set_version(trainer->status().version + 1);
    v1::OptimizerStepResponse response;
    return calls().OptimizerStep(nullptr, &request, &response);
  }
  grpc::Status Score() {
    auto request = Request<v1::ComputeLogProbsRequest>();
    request.set_policy(v1::ComputeLogProbsRequest::CURRENT);
    v1::ComputeLogProbsResponse response;
    return calls().ComputeLogProbs(nullptr, &request, &response);
  }
  grpc::Status Sync() {
    auto request = Request<v1::SyncWeightsRequest>();
    request.set_version(trainer->status().version);
    v1::SyncWeightsResponse response;
    return calls().SyncWeights(nullptr, &request, &response);
  }
  grpc::Status Save() {
    auto request = Request<v1::SaveStateRequest>();
    request.set_version(trainer->status().version);
    request.set_directory((dir.path() / "saved").string());
    std::filesystem::create_directories(request.directory());
    v1::SaveStateResponse response;
    return calls().SaveState(nullptr, &request, &response);
  }

  TempDir dir;
  EmulatedCuda* const cuda = new EmulatedCuda;  // the backend's
  TrainerOptions options;
  ListedSamples samples;
  std::unique_ptr<Trainer> trainer;
  absl::Status lost;  // what the process was told
  std::unique_ptr<TrainerService> service =
      TrainerService::Create([] {}, [this](const absl::Status& why) { lost = why; });
  EngineThread engine{"trainer"};
};

void RequireGone(const LosableTrainer& trainer, const grpc::Status& reply) {
  const absl::Status told = FromGrpcStatus(reply);
  INFO(told.ToString());
  REQUIRE(absl::IsUnavailable(told));
  REQUIRE_FALSE(AnsweredByWorker(told));
  REQUIRE(IsDeviceLost(trainer.lost));
}

}  // namespace

TEST_CASE("whatever a trainer is asked to do when its GPU is lost, it says so", "[trainer][cuda]") {
  const std::vector<std::pair<std::string, std::function<grpc::Status(LosableTrainer&)>>> calls = {
      {"train", [](LosableTrainer& trainer) { return trainer.Train(); }},
      {"optimize", [](LosableTrainer& trainer) { return trainer.Optimize(); }},
      {"log-probs", [](LosableTrainer& trainer) { return trainer.Score(); }},
      {"sync", [](LosableTrainer& trainer) { return trainer.Sync(); }},
      {"save", [](LosableTrainer& trainer) { return trainer.Save(); }},
      {"reset", [](LosableTrainer& trainer) {
         auto request = trainer.Request<v1::TrainerResetRequest>();
         request.set_generation(3);
         return trainer.Reset(request);
       }}};
  for (const auto& [name, call] : calls) {
    INFO(name);
    LosableTrainer trainer;
    // All memory that its passes need is there.
    REQUIRE(trainer.Train().ok());
    REQUIRE(trainer.Optimize().ok());
    if (name == "optimize") REQUIRE(trainer.Train().ok());
    trainer.cuda->LoseDevice();
    RequireGone(trainer, call(trainer));
  }
}

TEST_CASE("a GPU that is lost in the middle of a training pass is told too", "[trainer][cuda]") {
  for (const auto& [call, skipped] : {std::pair("Copy", 0), std::pair("Copy", 3),
                                      std::pair("Fill", 0), std::pair("Synchronize", 0)}) {
    INFO(call << " after " << skipped);
    LosableTrainer trainer;
    REQUIRE(trainer.Train().ok());
    trainer.cuda->FailCall(call, WithDeviceLost(absl::InternalError("an ECC error")), skipped);
    RequireGone(trainer, trainer.Train());
  }
}

TEST_CASE("what a partner takes while a trainer gives memory back fails no step",
          "[trainer][cuda]") {
  LosableTrainer trainer;
  REQUIRE(trainer.Train().ok());
  // None of the released bytes shows as free, as where a rollout takes as many.
  trainer.cuda->HoldReleasedPages(int64_t{1} << 30);
  const grpc::Status stepped = trainer.Optimize();
  INFO(stepped.error_message());
  REQUIRE(stepped.ok());
  REQUIRE(trainer.trainer->status().version == 1);
  REQUIRE(BytesOf(trainer.trainer->ledger().Snapshot(), "gradients") == 0);
  REQUIRE(trainer.cuda->used_bytes() > 0);
  REQUIRE(trainer.Train().ok());
}

TEST_CASE("another failure of a trainer is its answer, and it lives on", "[trainer][cuda]") {
  LosableTrainer trainer;
  trainer.samples.fail = absl::NotFoundError("no such batch");
  const absl::Status told = FromGrpcStatus(trainer.Train());
  REQUIRE(absl::IsNotFound(told));
  REQUIRE(AnsweredByWorker(told));
  REQUIRE(trainer.lost.ok());
}

}  // namespace tandem
