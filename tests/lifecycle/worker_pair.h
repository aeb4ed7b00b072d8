// A trainer and a rollout in one process, with the real service and gRPC between them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "common/lora/lora_spec.h"
#include "common/net/channel.h"
#include "common/net/server.h"
#include "rollout_worker/rollout_service.h"
#include "tandem/v1/types.pb.h"
#include "tests/rollout_worker/engine_rig.h"
#include "tests/support/patience.h"
#include "trainer_worker/trainer.h"
#include "trainer_worker/weight_sync/grpc_update_client.h"

namespace tandem::testing {

// The stream of a trainer that trains on the samples which a test sets.
class GivenSamples final : public SampleStream {
 public:
  absl::StatusOr<std::vector<Sample>> Pull(int64_t, int64_t) override { return samples; }
  absl::StatusOr<std::vector<Sample>> PullProbe(int64_t) override { return samples; }
  absl::Status PutLogProbs(int64_t, const std::string&, const LogProbsBySample&) override {
    return absl::OkStatus();
  }
  std::vector<Sample> samples;
};

struct WorkerPairOptions {
  DType dtype = DType::kBFloat16;
  LoraOptions lora;       // rank 0: all weights are trained
  double lr = 0;          // 0: the trainer's default
  bool scramble = false;  // rows are written over NaN
};

struct WorkerPair {
  const WorkerPairOptions options;
  TinyWeights weights;
  ModelSpec spec;  // with the adapters
  std::unique_ptr<Engine> engine;
  std::unique_ptr<RolloutService> service;
  std::unique_ptr<RpcServer> server;
  GivenSamples stream;
  std::unique_ptr<Trainer> trainer;
  int64_t incarnation = 0;

  explicit WorkerPair(WorkerPairOptions pair_options)
      : options(std::move(pair_options)),
        weights({.float32 = options.dtype == DType::kFloat32}, options.dtype),
        spec(WithAdapters(weights.spec, options.lora).value()) {
    StartRollout();
    TrainerOptions trainer_options;
    trainer_options.session.model_dir = weights.dir.path().string();
    trainer_options.session.vocab_limit = TinyTokenizerSize();
    trainer_options.session.max_sequence_tokens = 512;
    trainer_options.session.max_micro_batch_tokens = 512;
    trainer_options.session.publish.slot_bytes = 64 << 10;
    if (options.lr > 0) trainer_options.session.optimizer.schedule.lr = options.lr;
    trainer_options.session.lora = options.lora;
    trainer_options.dtype = options.dtype;
    trainer_options.rpc_timeout = kPatience;
    trainer = Trainer::Create(trainer_options, &stream, &Connect).value();
    REQUIRE(trainer
                ->Reset({.generation = 1,
                         .world_size = 1,
                         .rendezvous = (weights.dir.path() / "group.sock").string()})
                .ok());
  }
  ~WorkerPair() { StopRollout(); }

  void StartRollout() {
    EngineOptions engine_options = MakeEngineTestOptions(weights, {});
    engine_options.spec = spec;
    engine = Engine::Create(engine_options).value();
    service = RolloutService::Create([] {});
    const std::string name = "rollout-" + std::to_string(++incarnation) + ".sock";
    server =
        RpcServer::Start("unix:" + (weights.dir.path() / name).string(), {service->service()}, {})
            .value();
    v1::WorkerId worker;
    worker.set_role(v1::ROLE_ROLLOUT);
    worker.set_incarnation(incarnation);
    service->SetReady(engine.get(), worker);
  }
  void StopRollout() {
    engine->Shutdown();
    server->Shutdown(absl::Seconds(2));
    server.reset();
    service.reset();
    engine.reset();
  }

  static absl::StatusOr<RolloutLink> Connect(const RolloutTarget& target) {
    TANDEM_ASSIGN_OR_RETURN(auto channel, MakeChannel(target.address));
    auto client = std::make_unique<GrpcUpdateClient>(
        std::move(channel), GrpcUpdateClientOptions{.rollout_incarnation = target.incarnation,
                                                    .scramble = target.scramble});
    WeightReader* reader = client.get();
    return RolloutLink{std::move(client), reader};
  }

  // Wakes the weights, sends them, and wakes the KV cache.
  PublishReport Sync(int64_t version) {
    REQUIRE(Wake(*engine, {"weights"}).ok());
    const auto synced = trainer->SyncWeights({.version = version,
                                              .target_ranks = {0},
                                              .targets = {{.address = server->address(),
                                                           .incarnation = incarnation,
                                                           .scramble = options.scramble}}});
    INFO(synced.status().ToString());
    REQUIRE(synced.ok());
    REQUIRE(Wake(*engine, {"kv_cache"}).ok());
    return synced->publish;
  }

  // Four samples of 12 tokens by the weights of `version`, which are verified first.
  std::vector<Sample> Generate(int64_t version) {
    REQUIRE(VerifyWeights(*engine, version).ok());
    std::vector<GenerationRequest> requests = MixedRequests({20, 70}, 2, 12);
    for (GenerationRequest& request : requests) {
      request.params.temperature = 1;
      request.params.ignore_eos = true;
      request.version = version;
    }
    std::vector<Sample> samples;
    for (auto& [id, sample] : GenerateAll(*engine, requests)) {
      sample.advantages.assign(12, id % 2 == 0 ? 1.0f : -1.0f);
      samples.push_back(sample);
    }
    return samples;
  }

  // Trains on the stream's samples of `version`; the log-probs of all tokens must be bit-identical.
  MiniBatchReport Train(int64_t version, bool first_update = false) {
    const auto trained = trainer->ForwardBackward({.step = version + 1,
                                                   .version = version,
                                                   .global_tokens = 4 * 12,
                                                   .global_samples = 4,
                                                   .compare_log_probs = true,
                                                   .first_update = first_update});
    INFO(trained.status().ToString());
    REQUIRE(trained.ok());
    REQUIRE(trained->batch.comparison.identical == 4 * 12);
    REQUIRE(trainer->OptimizerStep(version + 1).ok());
    return trained->batch;
  }
};

}  // namespace tandem::testing
