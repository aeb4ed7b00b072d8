#include "deploy/launcher/launch_plan.h"

#include <catch2/catch.hpp>
#include <fmt/ranges.h>

namespace tandem {
namespace {

std::string Line(const LaunchPlan& plan, ProcessId id) {
  return fmt::format("{}", fmt::join(CommandLine(plan, id), " "));
}

TEST_CASE("every process gets its command line and its log") {
  const auto loaded = LoadConfig("", {"cluster.run_dir=/r", "trainer.device=cuda"});
  REQUIRE(loaded.ok());
  LaunchPlan plan = MakeLaunchPlan(loaded->config, "/b", "c.yaml", {"rollout.n=4", "data.seed=2"});
  REQUIRE(Line(plan, {Role::kController, 0}) ==
          "/b/tandem-controller --config c.yaml --set rollout.n=4 --set data.seed=2 --run-dir /r "
          "--listen unix:/r/controller.sock");
  plan.launch_id = "7-1";
  REQUIRE(Line(plan, {Role::kController, 0}).ends_with(" --launch-id 7-1"));
  plan.start_paused = true;
  REQUIRE(CommandLine(plan, {Role::kController, 0}).back() == "--start-paused");
  REQUIRE(Line(plan, {Role::kTrainer, 1}) ==
          "/b/tandem-trainer --controller unix:/r/controller.sock --role trainer --rank 1 "
          "--device cuda:1");
  REQUIRE(LogPath(plan, {Role::kRollout, 1}) == "/r/logs/rollout-1.log");
  plan = MakeLaunchPlan(DefaultConfig(), "/b", "c.yaml", {});
  REQUIRE(Line(plan, {Role::kRollout, 0}).find("--role rollout --rank 0 --device cpu:0") !=
          std::string::npos);
}

}  // namespace
}  // namespace tandem
