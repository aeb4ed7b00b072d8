// One step off with real processes: the same bits whichever process dies, and however many rollouts
// there are.
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"
#include "tests/support/text.h"

namespace tandem::testing {
namespace {

constexpr int64_t kTrainedSteps = 4;

RigOptions OneStepOff() {
  return {.config = {{"base", std::filesystem::absolute("configs/tiny.yaml").string()},
                     {"trainer.off_policy_steps", "1"},
                     {"trainer.total_training_steps", std::to_string(kTrainedSteps)},
                     {"trainer.save_freq", "1"}}};
}

struct Trained {
  std::string weights;                            // of the last checkpoint
  std::vector<std::vector<std::string>> samples;  // of each step: tokens, log-probs, versions
};

Trained TrainedBy(const ClusterRig& rig) {
  Trained trained{.weights = rig.Weights(kTrainedSteps)};
  REQUIRE_FALSE(trained.weights.empty());
  for (int64_t step = 1; step <= kTrainedSteps; ++step)
    trained.samples.push_back(rig.StoredRecords(step));
  return trained;
}

Trained TrainToEnd(ClusterRig& rig) {
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher") << rig.Log("controller"));
  REQUIRE(code == 0);
  REQUIRE(rig.LeftBehind() == "");
  return TrainedBy(rig);
}

Trained TrainApart(int trainers, int rollouts) {
  ClusterRig rig(OneStepOff());
  rig.SetApart(trainers, rollouts);
  Trained trained = TrainToEnd(rig);
  const auto metrics = rig.Metrics();
  REQUIRE(metrics.size() == kTrainedSteps);
  for (const auto& [step, values] : metrics) {
    INFO("step " << step);
    // Every token was sampled by the weights one step before, and compared with them: the first
    // step compares two batches, and the last none.
    REQUIRE(values.at("partial/staleness_max") == (step == 1 ? 0 : 1));
    REQUIRE(values.at("partial/overlap_rounds") == (step == kTrainedSteps ? 0 : 1));
    REQUIRE(values.contains("training/rollout_log_probs_identical") == (step < kTrainedSteps));
    if (step < kTrainedSteps) REQUIRE(values.at("training/rollout_log_probs_identical") == 1.0);
    REQUIRE(values.contains("timing_s/wait_generate") == (step < kTrainedSteps));
    REQUIRE(values.contains("timing_s/wait_train") == (step < kTrainedSteps));
  }
  return trained;
}

const Trained& UndisturbedRun() {
  static const Trained undisturbed = TrainApart(2, 1);
  return undisturbed;
}

void RequireUndisturbed(const Trained& trained) {
  REQUIRE(trained.samples == UndisturbedRun().samples);
  REQUIRE(trained.weights == UndisturbedRun().weights);
}

TEST_CASE("one rollout and three generate the same next batches") {
  RequireUndisturbed(TrainApart(2, 3));
}

TEST_CASE("a run that is told to start anew finds nothing in a fresh folder, and itself later") {
  ClusterRig rig(OneStepOff());
  rig.SetApart(2, 1);
  rig.Set("trainer.resume_mode", "disable");
  RequireUndisturbed(TrainToEnd(rig));
  REQUIRE_FALSE(Has(rig.Log("controller"), "starting over"));
  RequireUndisturbed(TrainToEnd(rig));
  REQUIRE(Has(rig.Log("launcher") + rig.Log("controller"), "the earlier run was moved to"));
}

TEST_CASE("three hosts end with the bits of one") {
  ClusterRig rig(OneStepOff());
  rig.SetApart(2, 1);
  rig.Set("trainer.nnodes", "2");
  rig.ListenOnPort();
  rig.UseNode("a");
  TestProcess& controller = rig.StartController();
  rig.StartTrainer(0);
  rig.UseNode("b");
  rig.StartTrainer(1);
  rig.UseNode("c");
  rig.StartRollout(0);
  const int code = controller.Wait();
  INFO(rig.Log("controller") << rig.Log("trainer") << rig.Log("trainer", 1) << rig.Log("rollout"));
  REQUIRE(code == 0);
  REQUIRE(rig.LeftBehind() == "");
  RequireUndisturbed(TrainedBy(rig));
}

// Kills a process of a run with two trainers and `rollouts` rollouts.
void RequireRecovered(const Fault& fault, int rollouts) {
  INFO(fault.role << " " << fault.rank << " at " << fault.point << " " << fault.nth);
  ClusterRig rig(OneStepOff());
  rig.SetApart(2, rollouts);
  rig.SetFault(fault.role, fault.rank, fault.point, fault.nth);
  const Trained trained = TrainToEnd(rig);
  REQUIRE(rig.FaultFired());
  RequireUndisturbed(trained);
}

TEST_CASE("a rollout killed while it generates ahead is replaced, whether others are left or not") {
  RequireRecovered({"rollout", 0, "generate", 30}, 1);
  RequireRecovered({"rollout", 1, "generate", 12}, 3);
}

TEST_CASE("a killed trainer brings the run back to a checkpoint with its next batch") {
  RequireRecovered({"trainer", 1, "train", 3}, 1);
}

// Ends all processes of a run in its third step, which trains what the second one's checkpoint
// holds.
void EndInThirdStep(ClusterRig& rig) {
  rig.SetApart(2, 1);
  rig.Set("cluster.max_restarts", "0");
  rig.SetFault("controller", 0, "train", 3);
  REQUIRE(rig.Launch().Wait() != 0);
  REQUIRE(rig.FaultFired());
  REQUIRE(rig.LeftBehind() == "");
  REQUIRE(std::filesystem::exists(rig.run_dir() + "/checkpoints/step_2/partial_pool/pool.jsonl"));
}

TEST_CASE("a run that ends with a batch pending goes on to the same end") {
  ClusterRig rig(OneStepOff());
  EndInThirdStep(rig);
  RequireUndisturbed(TrainToEnd(rig));
}

TEST_CASE("a checkpoint with a pending batch is refused without the key") {
  ClusterRig rig(OneStepOff());
  EndInThirdStep(rig);
  rig.Set("trainer.off_policy_steps", "0");
  REQUIRE(rig.Launch().Wait() == 65);
  const std::string said = rig.Log("launcher") + rig.Log("controller");
  INFO(said);
  REQUIRE(Has(said, "groups that are not trained yet"));
  REQUIRE(Has(said, "trainer.off_policy_steps"));
}

}  // namespace
}  // namespace tandem::testing
