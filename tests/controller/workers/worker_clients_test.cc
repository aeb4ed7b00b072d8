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
#include "tests/fakes/answer_of.h"

namespace tandem {
namespace {

class SleepingRollout final : public RolloutClient {
 public:
  void Sleep(SleepMode /*mode*/, Done<SleepReports> done) override { done(SleepReports{}); }
  void CancelAll() override {}
  std::string address() const override { return "here"; }
  int64_t incarnation() const override { return 1; }
};

class SavingTrainer final : public TrainerClient {
 public:
  void SaveState(const std::string& /*directory*/,
                 int64_t /*version*/,
                 Done<SaveReply> done) override {
    done(SaveReply{.bytes = 5});
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
  using testing::AnswerOf, testing::StatusOf;
  REQUIRE(AnswerOf<SleepReports>([&](auto end) { rollout.Sleep(SleepMode::kLevel1, end); }).ok());
  RequireUnimplemented(AnswerOf<PhaseReport>([&](auto end) { rollout.Wake({}, end); }).status(),
                       "Wake");
  RequireUnimplemented(StatusOf([&](auto end) { rollout.Abort({}, end); }), "Abort");
  RequireUnimplemented(
      AnswerOf<PhaseReport>([&](auto end) { rollout.VerifyWeights(1, end); }).status(),
      "VerifyWeights");
  RequireUnimplemented(AnswerOf<int64_t>([&](auto end) { rollout.PrefilledTokens(end); }).status(),
                       "PrefilledTokens");
  RequireUnimplemented(StatusOf([&](auto end) { rollout.AbortUpdate("", end); }), "AbortUpdate");
  RequireUnimplemented(StatusOf([&](auto end) { rollout.Shutdown(end); }), "Shutdown");
  std::optional<absl::Status> done;
  rollout.Generate(
      {}, [](Sample) { FAIL("no sample was generated"); },
      [&](absl::Status status) { done = std::move(status); });
  REQUIRE(done.has_value());
  RequireUnimplemented(*done, "Generate");
}

TEST_CASE("A trainer's client answers calls that it does not implement") {
  SavingTrainer trainer;
  using testing::AnswerOf, testing::StatusOf;
  const auto saved = AnswerOf<SaveReply>([&](auto end) { trainer.SaveState("", 1, end); });
  REQUIRE(saved->bytes == 5);
  RequireUnimplemented(StatusOf([&](auto end) { trainer.Reset({}, end); }), "Reset");
  RequireUnimplemented(
      AnswerOf<ForwardBackwardReply>([&](auto end) { trainer.ForwardBackward({}, end); }).status(),
      "ForwardBackward");
  RequireUnimplemented(
      AnswerOf<OptimizerStepReply>([&](auto end) { trainer.OptimizerStep(1, end); }).status(),
      "OptimizerStep");
  const auto score = [&](auto end) { trainer.ComputeLogProbs(1, ScoredPolicy::kCurrent, end); };
  RequireUnimplemented(AnswerOf<LogProbsReply>(score).status(), "ComputeLogProbs");
  RequireUnimplemented(
      AnswerOf<SyncReply>([&](auto end) { trainer.SyncWeights({}, end); }).status(), "SyncWeights");
  RequireUnimplemented(
      AnswerOf<WeightCheckResult>([&](auto end) { trainer.CheckWeights({}, end); }).status(),
      "CheckWeights");
  RequireUnimplemented(StatusOf([&](auto end) { trainer.Shutdown(end); }), "Shutdown");
}

}  // namespace tandem
