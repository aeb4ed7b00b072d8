// How a step finds out that a rollout's weights or computation are wrong.
#include <algorithm>

#include <catch2/catch.hpp>

#include "controller/run/train_loop.h"
#include "tests/fakes/fake_run.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::IndexOf;
using Lines = std::vector<std::string>;

testing::FakeRun& WithProbe(testing::FakeRun& run, int64_t steps = 1) {
  run.options.probe = true;
  run.options.total_steps = steps;
  run.options.sleep = SleepMode::kLevel1;
  return run;
}

}  // namespace

TEST_CASE("P7: resident weights come before the step, the probe before its training",
          "[train_loop][probe]") {
  testing::FakeRun run(2);
  REQUIRE(WithProbe(run).Run().ok());
  const Lines lines = run.journal.Take();
  for (const std::string rank : {"0", "1"}) {
    const size_t verified = IndexOf(lines, "rollout " + rank + " VerifyWeights(v0)");
    const size_t probed = IndexOf(lines, "rollout " + rank + " Generate(group -" +
                                             (rank == "0" ? "1" : "2") + ", 1 samples, v0)");
    const size_t scored = IndexOf(lines, "trainer " + rank + " ComputeLogProbs(step 1, probe)");
    REQUIRE(verified < IndexOf(lines, "rollout 0 Generate(group 0, 4 samples, v0)"));
    REQUIRE(probed < IndexOf(lines, "rollout 0 Generate(group 0, 4 samples, v0)"));
    for (const std::string other : {"0", "1"}) {
      REQUIRE(scored > IndexOf(lines, "rollout " + other + " Sleep(level)"));
    }
    REQUIRE(scored < IndexOf(lines, "trainer 0 ForwardBackward(step 1, mini 0 of 1, v0, compare)"));
  }
  REQUIRE(run.progress.phases == Lines{"verify", "generate", "score", "sleep", "probe", "advantage",
                                       "train", "optimize", "sync", "wake", "record", "save"});
  // Three prompts, two tokens each, on two pairs.
  REQUIRE(run.store.steps.at(1).metrics.at("weights/probe_tokens") == 12);
}

TEST_CASE("Apart, rollouts are only drained before a sync, and each is scored by its publisher",
          "[train_loop][probe]") {
  testing::FakeRun run(Topology{.trainers = 2, .rollouts = 3, .apart = true});
  const absl::Status ended = WithProbe(run).Run();
  INFO(ended.ToString());
  REQUIRE(ended.ok());
  REQUIRE(run.progress.phases == Lines{"verify", "generate", "score", "probe", "advantage", "train",
                                       "optimize", "drain", "sync", "wake", "record", "save"});
  const Lines lines = run.journal.Take();
  const size_t trained = IndexOf(lines, "trainer 1 OptimizerStep(v1)");
  for (const std::string rank : {"0", "1", "2"}) {
    REQUIRE(std::count(lines.begin(), lines.end(), "rollout " + rank + " VerifyWeights(v0)") == 1);
    REQUIRE(IndexOf(lines, "rollout " + rank + " Sleep(drain)") > trained);
  }
  // Three prompts, two tokens each, on three rollouts.
  REQUIRE(run.store.steps.at(1).metrics.at("weights/probe_tokens") == 18);
  REQUIRE(run.weights.Complete(1));
}

TEST_CASE("P7: the probe reaches no reward, metric or training", "[train_loop][probe]") {
  testing::FakeRun with(2), without(2);
  REQUIRE(WithProbe(with, 2).Run().ok());
  without.options.total_steps = 2;
  REQUIRE(without.Run().ok());
  for (int64_t step = 1; step <= 2; ++step) {
    REQUIRE(with.store.samples.at(step).size() == without.store.samples.at(step).size());
    auto metrics = with.store.steps.at(step).metrics;
    REQUIRE(metrics.erase("weights/probe_tokens") == 1);
    auto expected = without.store.steps.at(step).metrics;
    for (auto* map : {&metrics, &expected}) {
      std::erase_if(*map, [](const auto& m) {
        return m.first.rfind("timing", 0) == 0 || m.first.rfind("perf/", 0) == 0;
      });
    }
    REQUIRE(metrics == expected);
  }
  REQUIRE(without.journal.Count("rollout 0 VerifyWeights") == 0);
  REQUIRE(without.journal.Count("trainer 0 ComputeLogProbs") == 0);
}

TEST_CASE("P7: resident weights that changed stop the run in that step", "[train_loop][probe]") {
  testing::FakeRun run(2);
  run.journal.FailNext("rollout 1", "VerifyWeights", absl::DataLossError("model.x changed"), 1);
  const absl::Status status = WithProbe(run, 3).Run();
  REQUIRE(absl::IsDataLoss(status));
  REQUIRE(std::string(status.message()) == "rollout 1: model.x changed");
  REQUIRE(run.store.steps.size() == 1);
  // Nothing was generated with them.
  REQUIRE(run.journal.Count("rollout 0 Generate(group 0, 4 samples, v1)") == 0);
}

TEST_CASE("P7: a probe that differs stops the run before anything is trained on",
          "[train_loop][probe]") {
  testing::FakeRun run(2);
  run.probe_log_prob = -1.5f;
  const absl::Status status = WithProbe(run).Run();
  REQUIRE(absl::IsDataLoss(status));
  const std::string message(status.message());
  INFO(message);
  REQUIRE(message.find("rollout 0 says log-prob -1 at position 20") != std::string::npos);
  REQUIRE(message.find("trainer 0 says -1.5") != std::string::npos);
  REQUIRE(run.journal.Count("trainer 0 ForwardBackward") == 0);
}

TEST_CASE("A rollout lost as its weights are verified is synced and asked again",
          "[train_loop][probe][recovery]") {
  testing::FakeRun run(2);
  run.DieAt({WorkerRole::kRollout, 1}, "VerifyWeights");
  REQUIRE(WithProbe(run).Run().ok());
  const Lines lines = run.journal.Take();
  REQUIRE(std::count(lines.begin(), lines.end(), "rollout 1 VerifyWeights(v0)") == 2);
  REQUIRE(std::count(lines.begin(), lines.end(), "rollout 0 VerifyWeights(v0)") == 1);
  IndexOf(lines, "trainer 1 SyncWeights(v0, targets 1, r1i2)");
  REQUIRE(run.budget.spent() == 1);
}

TEST_CASE("A rollout that restarted between two steps is synced, nothing is made again",
          "[train_loop][probe][recovery]") {
  testing::FakeRun run(2);
  // Its successor has no weights and says so.
  run.journal.FailNext("rollout 0", "VerifyWeights", absl::FailedPreconditionError("Empty"), 1);
  REQUIRE(WithProbe(run, 2).Run().ok());
  const Lines lines = run.journal.Take();
  REQUIRE(std::count(lines.begin(), lines.end(), "trainer 0 Reset(, v0)") == 1);
  IndexOf(lines, "trainer 0 SyncWeights(v1, targets 0, r0i1)");
  REQUIRE(run.store.steps.size() == 2);
}

TEST_CASE("A rollout lost over its probe makes it when it is back",
          "[train_loop][probe][recovery]") {
  testing::FakeRun run(2);
  run.DieAt({WorkerRole::kRollout, 1}, "Generate");
  REQUIRE(WithProbe(run).Run().ok());
  const Lines lines = run.journal.Take();
  const size_t synced = IndexOf(lines, "trainer 1 SyncWeights(v0, targets 1, r1i2)");
  const auto probes = [&](size_t from) {
    return std::count(lines.begin() + static_cast<int64_t>(from), lines.end(),
                      "rollout 1 Generate(group -2, 1 samples, v0)");
  };
  REQUIRE(probes(synced) >= 1);
  // Two of its first life came, which its second life made too.
  REQUIRE(run.store.steps.at(1).metrics.at("weights/probe_tokens") == 16);
}

TEST_CASE("A rollout is probed again in the step in which it comes back",
          "[train_loop][probe][recovery]") {
  struct Death {
    const char* method;
    int after;
  };
  // Over the step's own prompts, when its three probes are made; and as it is sent to sleep.
  for (const Death& death : {Death{"Generate", 3}, {"Sleep", 0}}) {
    INFO(death.method);
    testing::FakeRun run(2);
    run.DieAt({WorkerRole::kRollout, 1}, death.method, death.after);
    const absl::Status status = WithProbe(run).Run();
    INFO(status.ToString());
    REQUIRE(status.ok());
    const Lines lines = run.journal.Take();
    const auto synced = lines.begin() + static_cast<int64_t>(IndexOf(
                                            lines, "trainer 1 SyncWeights(v0, targets 1, r1i2)"));
    const auto asleep = std::find(synced, lines.end(), "rollout 1 Sleep(level)");
    REQUIRE(asleep != lines.end());
    const std::string probe = "rollout 1 Generate(group -2, 1 samples, v0)";
    REQUIRE(std::count(lines.begin(), synced, probe) == 3);
    REQUIRE(std::count(synced, asleep, probe) == 3);
    // Six of each rollout, and six of one's second life.
    REQUIRE(run.store.steps.at(1).metrics.at("weights/probe_tokens") == 18);
  }
}

TEST_CASE("A second life that computes wrongly stops the run in that step",
          "[train_loop][probe][recovery]") {
  testing::FakeRun run(2);
  run.make_rollout = [&](int rank, int64_t incarnation) {
    auto rollout = std::make_shared<testing::FakeRolloutClient>(run.journal, rank, incarnation);
    if (incarnation == 2) rollout->first_log_prob = -3.0f;
    return rollout;
  };
  run.DieAt({WorkerRole::kRollout, 1}, "Generate", 3);
  const absl::Status status = WithProbe(run).Run();
  INFO(status.ToString());
  REQUIRE(absl::IsDataLoss(status));
  REQUIRE(std::string(status.message()).find("rollout 1 says log-prob -3 ") != std::string::npos);
  REQUIRE(run.journal.Count("trainer 0 ForwardBackward") == 0);
}

}  // namespace tandem
