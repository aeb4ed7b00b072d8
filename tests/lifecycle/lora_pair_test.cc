// Separate adapters through whole steps of a pair: generate, sleep, train, sync, wake.
#include <catch2/catch.hpp>

#include "tests/lifecycle/worker_pair.h"

namespace tandem {
namespace {

using namespace tandem::testing;

struct LoraPair : WorkerPair {
  explicit LoraPair(double dropout = 0)
      : WorkerPair({.lora = {.rank = 4,
                             .alpha = 12,
                             .target_modules = {"all-linear"},
                             .merge = false,
                             .dropout = dropout},
                    .lr = 1e-2,
                    .scramble = true}) {}

  // Returns the bytes that crossed. The trainer compares the rollout's weights afterwards.
  int64_t SyncAndCheck(int64_t version) {
    const int64_t bytes = Sync(version).bytes;
    const auto checked = trainer->CheckWeights(
        {.rollout_address = server->address(), .rollout_incarnation = incarnation});
    INFO(checked.status().ToString());
    REQUIRE(checked.ok());
    REQUIRE(checked->weights.ok());
    REQUIRE(checked->weights.checked == std::ssize(engine->layout().places()));
    return bytes;
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
  REQUIRE(pair.SyncAndCheck(0) == whole);
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
      REQUIRE(Sleep(*pair.engine, {.level = level}).ok());
    }
    pair.Train(step, true);
    REQUIRE(pair.SyncAndCheck(step + 1) == (restart || level == 2 ? whole : adapters));
  }
}

TEST_CASE("log-probs of a rollout stay those of a trainer whose adapters drop, step after step") {
  LoraPair pair(0.3);
  pair.SyncAndCheck(0);
  for (int64_t step = 0; step < 5; ++step) {
    INFO("step " << step);
    pair.stream.samples = pair.Generate(step);
    REQUIRE(Sleep(*pair.engine, {.level = 1}).ok());
    const MiniBatchReport trained = pair.Train(step, true);
    // Adapters begin with B zero: then there is nothing that dropout could change.
    REQUIRE((trained.metrics.at("actor/ratio_max") == 1.0) == (step == 0));
    pair.SyncAndCheck(step + 1);
  }
}

TEST_CASE("a sync that is lost halfway leaves no version, and the next one sends everything") {
  LoraPair pair;
  const int64_t whole = pair.Bytes(UpdateScope::kWhole);
  REQUIRE(pair.SyncAndCheck(0) == whole);
  // A trainer that dies after its first bucket of adapters.
  EngineUpdateClient client(pair.engine.get());
  const Manifest manifest = ManifestOf(pair.engine->layout(), UpdateScope::kAdapters);
  auto slots = HostTransport()->Create({1 << 20, 1}, SlotLife::kOneUpdate, nullptr).value();
  const int64_t number = int64_t{1} << 60;
  {
    const auto link = client.Begin({.id = {5, number},
                                    .slots = slots->shape(),
                                    .manifest = manifest,
                                    .scope = UpdateScope::kAdapters,
                                    .group_generation = 1},
                                   *slots);
    REQUIRE(link.ok());
    REQUIRE(client.StartApply(0, {{0, 0, manifest[0].rows(), 0}}).ok());
    REQUIRE(client.WaitApply(0).ok());
  }
  REQUIRE(AbortUpdate(*pair.engine, {5, number}).ok());
  REQUIRE(pair.engine->status().version == kNoVersion);
  REQUIRE(pair.engine->status().state == RolloutState::kEmpty);
  REQUIRE(pair.SyncAndCheck(0) == whole);
  pair.stream.samples = pair.Generate(0);
  REQUIRE(Sleep(*pair.engine, {.level = 1}).ok());
  pair.Train(0, true);
}

}  // namespace tandem
