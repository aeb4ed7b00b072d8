#include "tests/e2e/placed_run.h"

#include <filesystem>
#include <utility>

#include <catch2/catch.hpp>

namespace tandem::testing {

RigOptions Tiny(Settings more) {
  more["base"] = std::filesystem::absolute("configs/tiny.yaml").string();
  return {.config = std::move(more)};
}

PlacedRun ReadPlacedRun(ClusterRig& rig) {
  REQUIRE(rig.LeftBehind() == "");
  PlacedRun run{.outcome = OutcomeOf(rig, kSteps),
                .said = rig.Log("launcher") + rig.Log("controller")};
  RequireLearned(run.outcome, kSteps);
  for (int64_t step = 1; step <= kSteps; ++step) {
    run.samples.push_back(rig.StoredRecords(step));
    REQUIRE(run.samples.back().size() == 16);
    run.probe_tokens.push_back(rig.Metrics().at(step).at("weights/probe_tokens").get<double>());
  }
  return run;
}

PlacedRun Finish(ClusterRig& rig) {
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher") << rig.Log("controller"));
  REQUIRE(code == 0);
  return ReadPlacedRun(rig);
}

void RequireSame(const PlacedRun& run, const PlacedRun& expected) {
  REQUIRE(run.outcome.weights == expected.outcome.weights);
  REQUIRE(run.samples == expected.samples);
  REQUIRE(run.outcome.metrics == expected.outcome.metrics);  // losses among them
}

PlacedRun RunColocated(Settings settings) {
  settings["rollout.free_cache_engine"] = "true";
  ClusterRig rig(Tiny(std::move(settings)));
  rig.SetPairs(2);
  return Finish(rig);
}

const PlacedRun& OnOneHost() {
  static const PlacedRun run = RunColocated();
  return run;
}

}  // namespace tandem::testing
