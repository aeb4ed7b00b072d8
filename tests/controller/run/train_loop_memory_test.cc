// KV pools and training memory never coexist: the order of calls that ensures it.
#include <catch2/catch.hpp>

#include "common/base/status.h"
#include "controller/run/train_loop.h"
#include "tests/fakes/fake_run.h"

namespace tandem {
namespace {

using Lines = std::vector<std::string>;

TEST_CASE("KV caches wake when every trainer has given its training memory back", "[train_loop]") {
  testing::FakeRun run(3);
  run.options.sleep = SleepMode::kLevel2;
  REQUIRE(run.Run().ok());
  const Lines lines = run.journal.Take();
  int awake = 0;     // KV caches
  int answered = 0;  // syncs of the version under way
  for (const std::string& line : lines) {
    INFO(line);
    if (line.find("ForwardBackward(") != std::string::npos) REQUIRE(awake == 0);
    if (line.find("OptimizerStep(") != std::string::npos) answered = 0;
    if (line.find("SyncWeights(") != std::string::npos) {
      REQUIRE(awake == 0);
      ++answered;
    }
    if (line.find("Wake(kv_cache)") != std::string::npos) {
      REQUIRE(answered == 3);
      ++awake;
    }
    if (line.find("Sleep(level)") != std::string::npos) --awake;
  }
  REQUIRE(awake == 3);
}

TEST_CASE("No KV cache wakes after a sync in which a trainer kept training memory",
          "[train_loop]") {
  testing::FakeRun run(2);
  run.options.total_steps = 1;
  run.options.sleep = SleepMode::kLevel1;
  run.journal.FailNext("trainer 1", "SyncWeights", Internal("still holds 5 bytes of gather"), 1);
  const absl::Status status = run.Run();
  REQUIRE(absl::IsInternal(status));
  REQUIRE(std::string(status.message()) == "trainer 1: still holds 5 bytes of gather");
  REQUIRE(run.journal.Count("rollout 0 Wake(kv_cache)") == 1);
  REQUIRE(run.journal.Count("rollout 1 Wake(kv_cache)") == 1);
}

TEST_CASE("A step's phases have its weight check and its checkpoint, with their peaks",
          "[train_loop]") {
  testing::FakeRun run(1, 3, {.when = CheckPolicy::When::kAlways});
  run.options.total_steps = 2;
  run.options.save_freq = -1;
  REQUIRE(run.Run().ok());
  const auto peak = [&](int64_t step, const std::string& name) -> int64_t {
    for (const PhaseTime& phase : run.store.steps.at(step).phases) {
      if (phase.phase == name) return phase.peak_bytes;
    }
    return -1;
  };
  for (const int64_t step : {1, 2}) {
    REQUIRE(peak(step, "check") == testing::FakeTrainerClient::kCheckPeak);
    REQUIRE(peak(step, "sync") == 0);
  }
  // Saved at the end alone.
  REQUIRE(peak(1, "save") == -1);
  REQUIRE(peak(2, "save") == testing::FakeTrainerClient::kSavePeak);
  const std::vector<PhaseTime>& phases = run.store.steps.at(2).phases;
  std::vector<std::string> last;
  for (size_t i = phases.size() - 5; i < phases.size(); ++i) last.push_back(phases[i].phase);
  REQUIRE(last == Lines{"sync", "check", "wake", "record", "save"});
}

}  // namespace
}  // namespace tandem
