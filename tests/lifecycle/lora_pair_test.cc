// Adapters beside the base through whole steps of a pair: generate, sleep, train, sync, wake.
#include <catch2/catch.hpp>

#include "common/lora/lora_spec.h"
#include "common/net/channel.h"
#include "common/net/server.h"
#include "rollout_worker/rollout_service.h"
#include "tests/lifecycle/given_samples.h"
#include "tests/rollout_worker/engine_rig.h"
#include "tests/support/patience.h"
#include "trainer_worker/trainer.h"
#include "trainer_worker/weight_sync/grpc_update_client.h"

namespace tandem {
namespace {

using namespace tandem::testing;

struct LoraPair {
  TinyWeights weights{TinyModelOptions{}, DType::kBFloat16};
  ModelSpec spec;  // with adapters
  std::unique_ptr<Engine> engine;
  std::unique_ptr<RolloutService> service;
  std::unique_ptr<RpcServer> server;
  GivenSamples stream;
  std::unique_ptr<Trainer> trainer;
  int64_t incarnation = 0;

  explicit LoraPair(double dropout = 0) {
    const LoraOptions lora = {.rank = 4,
                              .alpha = 12,
                              .target_modules = {"all-linear"},
                              .merge = false,
                              .dropout = dropout};
    spec = WithAdapters(weights.spec, lora).value();
    StartRollout();
    TrainerOptions options;
    options.session.model_dir = weights.dir.path().string();
    options.session.vocab_limit = TinyTokenizerSize();
    options.session.max_sequence_tokens = 512;
    options.session.max_micro_batch_tokens = 512;
    options.session.publish.slot_bytes = 64 << 10;
    options.session.optimizer.schedule.lr = 1e-2;
    options.session.lora = lora;
    options.rpc_timeout = testing::kPatience;
    trainer = Trainer::Create(options, &stream, &Connect).value();
    REQUIRE(trainer
                ->Reset({.generation = 1,
                         .world_size = 1,
                         .rendezvous = (weights.dir.path() / "group.sock").string()})
                .ok());
  }
  ~LoraPair() { StopRollout(); }

  void StartRollout() {
    EngineOptions options = MakeEngineTestOptions(weights, {});
    options.spec = spec;
    engine = Engine::Create(options).value();
    service = std::make_unique<RolloutService>([] {});
    const std::string name = "rollout-" + std::to_string(++incarnation) + ".sock";
    server =
        RpcServer::Start("unix:" + (weights.dir.path() / name).string(), {service.get()}).value();
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

  // Bytes that crossed. What comes is written over NaN.
  int64_t Sync(int64_t version) {
    REQUIRE(engine->Wake({"weights"}).ok());
    const SyncCommand sync{.version = version,
                           .target_ranks = {0},
                           .rollout_address = server->address(),
                           .rollout_incarnation = incarnation,
                           .scramble = true};
    const auto synced = trainer->SyncWeights(sync);
    INFO(synced.status().ToString());
    REQUIRE(synced.ok());
    const auto checked = trainer->CheckWeights(
        {.rollout_address = server->address(), .rollout_incarnation = incarnation});
    INFO(checked.status().ToString());
    REQUIRE(checked.ok());
    REQUIRE(checked->weights.ok());
    REQUIRE(checked->weights.checked == std::ssize(engine->layout().places()));
    REQUIRE(engine->Wake({"kv_cache"}).ok());
    return synced->publish.bytes;
  }

  std::vector<Sample> Generate(int64_t version) {
    REQUIRE(engine->VerifyWeights(version).ok());
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

  // Trains on samples of the weights of `version`, all of whose log-probs have to be the same bits.
  MiniBatchReport Train(int64_t version) {
    const auto trained = trainer->ForwardBackward({.step = version + 1,
                                                   .version = version,
                                                   .global_tokens = 4 * 12,
                                                   .global_samples = 4,
                                                   .compare_log_probs = true,
                                                   .fresh = true});
    INFO(trained.status().ToString());
    REQUIRE(trained.ok());
    REQUIRE(trained->batch.comparison.identical == 4 * 12);
    REQUIRE(trainer->OptimizerStep(version + 1).ok());
    return trained->batch;
  }

  int64_t Bytes(UpdateScope scope) { return ManifestBytes(ManifestOf(engine->layout(), scope)); }
};

}  // namespace

TEST_CASE(
    "only adapters cross where the base is held; asleep at level 2 or started again it is not") {
  LoraPair pair;
  const int64_t whole = pair.Bytes(UpdateScope::kWhole);
  const int64_t adapters = pair.Bytes(UpdateScope::kAdapters);
  REQUIRE(adapters > 0);
  REQUIRE(adapters < whole / 2);
  REQUIRE(pair.Sync(0) == whole);
  std::vector<Sample> before;
  for (int64_t step = 0; step < 9; ++step) {
    INFO("step " << step);
    pair.stream.samples = pair.Generate(step);
    if (step > 1) REQUIRE(pair.stream.samples[0].log_probs != before[0].log_probs);
    before = pair.stream.samples;
    const bool restart = step == 5;
    const int level = step % 3 == 1 ? 2 : 1;
    if (restart) {
      pair.StopRollout();
      pair.StartRollout();
    } else {
      REQUIRE(pair.engine->Sleep({.level = level}).ok());
    }
    pair.Train(step);
    REQUIRE(pair.Sync(step + 1) == (restart || level == 2 ? whole : adapters));
  }
}

TEST_CASE("log-probs of a rollout stay those of a trainer whose adapters drop, step after step") {
  LoraPair pair(0.3);
  pair.Sync(0);
  for (int64_t step = 0; step < 5; ++step) {
    INFO("step " << step);
    pair.stream.samples = pair.Generate(step);
    REQUIRE(pair.engine->Sleep({.level = 1}).ok());
    const MiniBatchReport trained = pair.Train(step);
    // Adapters begin with B zero: then there is nothing that dropout could change.
    REQUIRE((trained.metrics.at("actor/ratio_max") == 1.0) == (step == 0));
    pair.Sync(step + 1);
  }
}

TEST_CASE("a sync that is lost halfway leaves no version, and the next one sends everything") {
  LoraPair pair;
  const int64_t whole = pair.Bytes(UpdateScope::kWhole);
  REQUIRE(pair.Sync(0) == whole);
  // A trainer that dies after its first bucket of adapters.
  EngineUpdateClient client(pair.engine.get());
  const Manifest manifest = ManifestOf(pair.engine->layout(), UpdateScope::kAdapters);
  auto slots = HostTransport()->Create({1 << 20, 1}, SlotLife::kOneUpdate, nullptr).value();
  const int64_t generation = int64_t{1} << 60;
  {
    const auto link = client.Begin({5, generation, manifest, UpdateScope::kAdapters}, *slots);
    REQUIRE(link.ok());
    REQUIRE(client.StartApply(0, {{0, 0, manifest[0].rows(), 0}}).ok());
    REQUIRE(client.WaitApply(0).ok());
  }
  REQUIRE(pair.engine->AbortUpdate(5, generation).ok());
  REQUIRE(pair.engine->status().version == kNoVersion);
  REQUIRE(pair.engine->status().state == RolloutState::kEmpty);
  REQUIRE(pair.Sync(0) == whole);
  pair.stream.samples = pair.Generate(0);
  REQUIRE(pair.engine->Sleep({.level = 1}).ok());
  pair.Train(0);
}

}  // namespace tandem
