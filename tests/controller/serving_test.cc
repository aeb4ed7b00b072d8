#include "controller/serving.h"

#include <catch2/catch.hpp>

#include "tests/fakes/fake_run.h"

namespace tandem {
namespace {

GroupRequest Group() {
  return {.version = 0,
          .prompt = {1},
          .sample_ids = {MakeSampleId(0, kUserEpoch, 0), MakeSampleId(0, kUserEpoch, 1),
                         MakeSampleId(0, kUserEpoch, 2)}};
}

// `deaths` times a rollout dies over what it is asked for.
absl::Status GenerateWith(testing::FakeRun& run, int deaths, Payer payer) {
  run.Prepare(StartMode::kPaused);
  REQUIRE(run.weights.Publish(0, "").ok());
  REQUIRE(run.weights.Wake().ok());
  if (deaths > 0) {
    run.journal.FailNext("rollout 0", "Generate", absl::UnavailableError("gone"), 0, deaths);
  }
  return run.serving->Generate(
      {Group()}, 0, [](Sample) { return absl::OkStatus(); }, payer);
}

}  // namespace

TEST_CASE("A group that rollouts die of twice fails, and all serve again", "[serving]") {
  testing::FakeRun run(1);
  const absl::Status status = GenerateWith(run, 100, Payer::kRun);
  REQUIRE(absl::IsInternal(status));
  REQUIRE(std::string(status.message()).find("was given up") != std::string::npos);
  REQUIRE(run.journal.Count("rollout 0 Generate") == 2);
  REQUIRE(run.weights.Complete(0));
  REQUIRE(run.budget.spent() == 2);
}

TEST_CASE("A rollout that is lost once costs a user's call nothing, nor the run", "[serving]") {
  testing::FakeRun run(1);
  REQUIRE(GenerateWith(run, 1, Payer::kUserCall).ok());
  REQUIRE(run.budget.spent() == 0);
}

TEST_CASE("A user's call that rollouts die of leaves the run its restarts", "[serving]") {
  testing::FakeRun run(1);
  for (int call = 0; call < 5; ++call) {
    REQUIRE(absl::IsInternal(GenerateWith(run, 2, Payer::kUserCall)));
  }
  REQUIRE(run.budget.spent() == 0);
  REQUIRE(GenerateWith(run, 0, Payer::kRun).ok());
}

}  // namespace tandem
