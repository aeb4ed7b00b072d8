// Clients that implement only a part of the calls, as fakes do.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <catch2/catch.hpp>

#include "common/types/sample.h"
#include "controller/workers/rollout_client.h"
#include "controller/workers/trainer_client.h"

namespace tandem {
namespace {

class SleepingRollout final : public RolloutClient {
 public:
  absl::StatusOr<SleepReports> Sleep(SleepMode /*mode*/) override { return SleepReports{}; }
  void CancelAll() override {}
  std::string address() const override { return "here"; }
  int64_t incarnation() const override { return 1; }
};

class SavingTrainer final : public TrainerClient {
 public:
  absl::StatusOr<SaveReply> SaveState(const std::string& /*directory*/,
                                      int64_t /*version*/) override {
    return SaveReply{.bytes = 5};
  }
  void CancelAll() override {}
  int64_t incarnation() const override { return 1; }
};

void RequireUnimplemented(const absl::Status& status, const std::string& call) {
  INFO(status.ToString());
  REQUIRE(absl::IsUnimplemented(status));
  REQUIRE(std::string(status.message()).ends_with(call));
}

}  // namespace

TEST_CASE("A rollout's client answers calls that it does not implement") {
  SleepingRollout rollout;
  REQUIRE(rollout.Sleep(SleepMode::kLevel1).ok());
  RequireUnimplemented(rollout.Wake({}).status(), "Wake");
  RequireUnimplemented(rollout.Abort({}), "Abort");
  RequireUnimplemented(rollout.VerifyWeights(1).status(), "VerifyWeights");
  RequireUnimplemented(rollout.PrefilledTokens().status(), "PrefilledTokens");
  RequireUnimplemented(rollout.AbortUpdate(""), "AbortUpdate");
  RequireUnimplemented(rollout.Shutdown(), "Shutdown");
  std::optional<absl::Status> done;
  rollout.Generate(
      {}, [](Sample) { FAIL("no sample was generated"); },
      [&](absl::Status status) { done = std::move(status); });
  REQUIRE(done.has_value());
  RequireUnimplemented(*done, "Generate");
}

TEST_CASE("A trainer's client answers calls that it does not implement") {
  SavingTrainer trainer;
  REQUIRE(trainer.SaveState("", 1)->bytes == 5);
  RequireUnimplemented(trainer.Reset({}), "Reset");
  RequireUnimplemented(trainer.ForwardBackward({}).status(), "ForwardBackward");
  RequireUnimplemented(trainer.OptimizerStep(1).status(), "OptimizerStep");
  RequireUnimplemented(trainer.ComputeLogProbs(1, ScoredPolicy::kCurrent).status(),
                       "ComputeLogProbs");
  RequireUnimplemented(trainer.SyncWeights({}).status(), "SyncWeights");
  RequireUnimplemented(trainer.CheckWeights("", "").status(), "CheckWeights");
  RequireUnimplemented(trainer.Shutdown(), "Shutdown");
}

}  // namespace tandem
