// One pair, three steps, started by hand in several orders.
#include <functional>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "tests/e2e/recovery.h"

namespace tandem::testing {
namespace {

constexpr int kFirstRunSteps = 3;
constexpr int kFirstRunSamples = 4 * 4;

void RequireWholeRun(const ClusterRig& rig, const std::string& console) {
  INFO(console);
  const auto metrics = rig.Metrics();
  REQUIRE(metrics.size() == kFirstRunSteps);
  for (const auto& [step, data] : metrics) {
    REQUIRE(data.at("training/rollout_log_probs_identical") == 1.0);
    REQUIRE(data.at("training/rollout_log_probs_diff_max") == 0.0);
    REQUIRE(data.at("critic/rewards/mean").is_number());
    REQUIRE(data.at("reward/format/mean").is_number());
    REQUIRE(data.at("actor/grad_norm") > 0.0);
    REQUIRE(data.at("actor/lr") == Approx(0.0005));
    REQUIRE(console.find(fmt::format("step {}/{}", step, kFirstRunSteps)) != std::string::npos);
  }
  RequireIdentical(console, kFirstRunSteps, kFirstRunSamples);
  for (const char* file : {"report.html", "run.db", "metrics.jsonl", "tensorboard",
                           "checkpoints/step_3/model.safetensors", "checkpoints/latest"}) {
    INFO(file);
    REQUIRE(rig.HasRunFile(file));
  }
  REQUIRE(rig.RunFile("report.html").find("</html>") != std::string::npos);
}

// Starts the three by hand; the next one only when the one before shows that it waits.
void RunInOrder(const std::vector<std::string>& order, Outcome* outcome) {
  ClusterRig rig;
  std::map<std::string, TestProcess*> started;
  for (const std::string& role : order) {
    if (!started.empty()) {
      const std::string before = order[started.size() - 1];
      WaitUntil(before + " to start", [&] { return !rig.Log(before).empty(); });
    }
    started[role] = role == "controller" ? &rig.StartController()
                    : role == "trainer"  ? &rig.StartTrainer()
                                         : &rig.StartRollout();
  }
  const int code = started.at("controller")->Wait();
  INFO(rig.Log("controller") << rig.Log("trainer") << rig.Log("rollout"));
  REQUIRE(code == 0);
  REQUIRE(started.at("trainer")->Wait() == 0);
  REQUIRE(started.at("rollout")->Wait() == 0);
  REQUIRE(rig.LeftBehind() == "");
  RequireWholeRun(rig, rig.Log("controller"));
  *outcome = OutcomeOf(rig, kFirstRunSteps);
}

TEST_CASE("three steps of one pair run in whatever order the processes start") {
  Outcome first, second, third;
  RunInOrder({"controller", "trainer", "rollout"}, &first);
  RunInOrder({"rollout", "trainer", "controller"}, &second);
  RunInOrder({"trainer", "controller", "rollout"}, &third);
  REQUIRE(second.metrics == first.metrics);
  REQUIRE(third.metrics == first.metrics);
  REQUIRE(second.weights == first.weights);
  REQUIRE(third.weights == first.weights);
}

TEST_CASE("the launcher runs one pair and leaves nobody behind") {
  ClusterRig rig;
  REQUIRE(rig.Launch().Wait() == 0);
  REQUIRE(rig.LeftBehind() == "");
  RequireWholeRun(rig, rig.Log("launcher"));
}

}  // namespace
}  // namespace tandem::testing
