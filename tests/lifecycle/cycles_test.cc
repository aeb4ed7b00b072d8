// A pair goes through a hundred steps: what it holds at the end of each is what it held before.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include <catch2/catch.hpp>
#include <malloc.h>
#include <unistd.h>

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

constexpr int64_t kCycles = 100;
constexpr int64_t kWarmUp = 10;  // cycles until every buffer that stays has its size
// What the heap of gRPC and the allocator may move; a cycle maps and gives back 11 MiB.
constexpr int64_t kSlackBytes = 4 << 20;

struct CyclesPair {
  TinyWeights weights;
  std::unique_ptr<Engine> engine;
  RolloutService service{[] {}};
  std::unique_ptr<RpcServer> server;
  GivenSamples stream;
  std::unique_ptr<Trainer> trainer;

  // With float32 weights cross through slots, with bf16 a rollout reads the shard.
  explicit CyclesPair(DType dtype) : weights({.float32 = dtype == DType::kFloat32}, dtype) {
    engine = Engine::Create(MakeEngineTestOptions(weights, {})).value();
    const std::string address = "unix:" + (weights.dir.path() / "rollout.sock").string();
    server = RpcServer::Start(address, {&service}).value();
    v1::WorkerId worker;
    worker.set_role(v1::ROLE_ROLLOUT);
    worker.set_incarnation(1);
    service.SetReady(engine.get(), worker);
    TrainerOptions options;
    options.session.model_dir = weights.dir.path().string();
    options.session.vocab_limit = TinyTokenizerSize();
    options.session.max_sequence_tokens = 512;
    options.session.max_micro_batch_tokens = 512;
    options.session.publish.slot_bytes = 64 << 10;
    options.dtype = dtype;
    options.rpc_timeout = testing::kPatience;
    trainer = Trainer::Create(options, &stream, &Connect).value();
    REQUIRE(trainer
                ->Reset({.generation = 1,
                         .world_size = 1,
                         .rendezvous = (weights.dir.path() / "group.sock").string()})
                .ok());
  }
  ~CyclesPair() {
    engine->Shutdown();
    server->Shutdown(absl::Seconds(2));
  }

  static absl::StatusOr<RolloutLink> Connect(const RolloutTarget& target) {
    TANDEM_ASSIGN_OR_RETURN(auto channel, MakeChannel(target.address));
    auto client = std::make_unique<GrpcUpdateClient>(
        std::move(channel), GrpcUpdateClientOptions{.rollout_incarnation = target.incarnation});
    WeightReader* reader = client.get();
    return RolloutLink{std::move(client), reader};
  }

  void Sync(int64_t version) {
    REQUIRE(engine->Wake({"weights"}).ok());
    const SyncCommand sync{.version = version,
                           .target_ranks = {0},
                           .rollout_address = server->address(),
                           .rollout_incarnation = 1};
    const auto synced = trainer->SyncWeights(sync);
    INFO(synced.status().ToString());
    REQUIRE(synced.ok());
    REQUIRE(synced->publish.direct == (weights.layout.dtype() == DType::kBFloat16));
    REQUIRE(engine->Wake({"kv_cache"}).ok());
  }

  // A step from `version` to the next.
  void Step(int64_t version, int sleep_level) {
    REQUIRE(engine->VerifyWeights(version).ok());
    std::vector<GenerationRequest> requests = MixedRequests({20, 70}, 2, 12);
    for (GenerationRequest& request : requests) {
      request.params.temperature = 1;
      request.params.ignore_eos = true;
      request.version = version;
    }
    stream.samples.clear();
    for (auto& [id, sample] : GenerateAll(*engine, requests)) {
      sample.advantages.assign(12, id % 2 == 0 ? 1.0f : -1.0f);
      stream.samples.push_back(sample);
    }
    REQUIRE(engine->Sleep({.level = sleep_level}).ok());
    const auto trained = trainer->ForwardBackward({.step = version + 1,
                                                   .version = version,
                                                   .global_tokens = 4 * 12,
                                                   .global_samples = 4,
                                                   .compare_log_probs = true});
    INFO(trained.status().ToString());
    REQUIRE(trained.ok());
    REQUIRE(trained->batch.comparison.identical == 4 * 12);
    REQUIRE(trainer->OptimizerStep(version + 1).ok());
    Sync(version + 1);
  }

  // Bytes of both workers by tag and place.
  std::map<std::pair<std::string, Location>, int64_t> Held() {
    std::map<std::pair<std::string, Location>, int64_t> held;
    for (Ledger* ledger : {&engine->ledger(), &trainer->ledger()}) {
      for (const LedgerEntry& entry : ledger->Snapshot().entries) {
        held[{entry.tag, entry.location}] += entry.current_bytes;
      }
    }
    return held;
  }
};

int64_t ResidentBytes() {
  malloc_trim(0);  // what the heap holds free is no growth
  int64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

int64_t Descriptors() {
  const std::filesystem::directory_iterator open("/proc/self/fd");
  return std::distance(begin(open), end(open));
}

int64_t Mappings() {
  std::ifstream maps("/proc/self/maps");
  return std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
}

}  // namespace

TEST_CASE(
    "M2: a hundred steps with sleep levels 1 and 2 in turn grow neither ledger, memory nor "
    "descriptors") {
  CyclesPair pair(GENERATE(DType::kBFloat16, DType::kFloat32));
  pair.Sync(0);
  for (int64_t cycle = 0; cycle < kWarmUp; ++cycle) pair.Step(cycle, 1 + cycle % 2);
  const auto held = pair.Held();
  const int64_t resident = ResidentBytes();
  const int64_t descriptors = Descriptors(), mappings = Mappings();
  const std::byte* const weights_at = pair.engine->weights_address();
  const std::byte* const kv_at = pair.engine->kv_address();
  for (int64_t cycle = kWarmUp; cycle < kWarmUp + kCycles; ++cycle) {
    INFO("cycle " << cycle);
    pair.Step(cycle, 1 + cycle % 2);
    REQUIRE(pair.Held() == held);
    REQUIRE(pair.engine->weights_address() == weights_at);
    REQUIRE(pair.engine->kv_address() == kv_at);
  }
  REQUIRE(pair.trainer->status().version == kWarmUp + kCycles);
  INFO(fmt::format("resident {} before, {} after; descriptors {} and {}; mappings {} and {}",
                   resident, ResidentBytes(), descriptors, Descriptors(), mappings, Mappings()));
  REQUIRE(ResidentBytes() <= resident + kSlackBytes);
  // Not one a cycle: gRPC closes a connection some time after its last use.
  REQUIRE(Descriptors() <= descriptors + 8);
  REQUIRE(Mappings() <= mappings + kCycles / 4);
}

}  // namespace tandem
