// When a run is finished, and how a start continues an unfinished one.
#include <filesystem>
#include <sstream>

#include <catch2/catch.hpp>

#include "controller/store/sqlite/run_reader.h"
#include "tests/e2e/recovery.h"
#include "tests/support/text.h"

namespace tandem::testing {
namespace {

// How many lines metrics.jsonl has of each step: steps and evaluations.
std::map<int64_t, int> LinesOfSteps(const ClusterRig& rig) {
  std::map<int64_t, int> lines;
  std::istringstream file(rig.RunFile("metrics.jsonl"));
  for (std::string text; std::getline(file, text);) {
    ++lines[nlohmann::json::parse(text).at("step").get<int64_t>()];
  }
  return lines;
}

TEST_CASE("a controller killed before the last validation: the next start makes up for it") {
  ClusterRig rig({.config = {{"cluster.max_restarts", "0"},
                             {"trainer.total_training_steps", "2"},
                             {"trainer.expected_val_rise", "2"}}});
  rig.Set("data.val_files", rig.dir() / "data" / "val.jsonl");
  rig.Set("trainer.val_before_train", "true");
  rig.SetFault("controller", 0, "evaluate", 2);
  REQUIRE(rig.Launch().Wait() != 0);
  REQUIRE(rig.FaultFired());
  REQUIRE(rig.HasRunFile("checkpoints/step_2"));
  REQUIRE_FALSE(rig.HasRunFile("checkpoints/finished"));
  REQUIRE_FALSE(rig.HasRunFile("report.html"));
  REQUIRE(LinesOfSteps(rig) == std::map<int64_t, int>{{0, 1}, {1, 1}, {2, 1}});

  int code = rig.Launch().Wait();
  INFO(rig.Log("launcher"));
  REQUIRE(code == 0);
  REQUIRE(Has(rig.Log("launcher"), "resuming after step 2 of 2"));
  REQUIRE(Has(rig.Log("launcher"), "held-out after step 2"));
  // Both validations are told, although another process made the first.
  REQUIRE(Has(rig.Log("launcher"), "before (step 0) -> "));
  REQUIRE(Has(rig.Log("launcher"), "less than the 2 expected"));
  REQUIRE(LinesOfSteps(rig) == std::map<int64_t, int>{{0, 1}, {1, 1}, {2, 2}});
  REQUIRE(rig.RunFile("checkpoints/finished") == "2\n");
  REQUIRE(Has(rig.RunFile("report.html"), "less than the 2 expected"));
  REQUIRE_FALSE(rig.HasRunFile("checkpoints.previous"));

  // Now it is finished: the next one starts anew, and its metrics with it.
  code = rig.Launch().Wait();
  REQUIRE(code == 0);
  REQUIRE(Has(rig.Log("launcher"), "had finished its 2 steps"));
  REQUIRE(rig.HasRunFile("checkpoints.previous/step_2"));
  REQUIRE(LinesOfSteps(rig) == std::map<int64_t, int>{{0, 1}, {1, 1}, {2, 2}});
  REQUIRE(rig.LeftBehind() == "");
}

TEST_CASE("a run whose time is bounded ends complete, and is made anew by the next start") {
  ClusterRig rig({.config = {{"trainer.total_training_steps", "1000"},
                             {"trainer.max_seconds", "1"},
                             {"trainer.min_training_steps", "3"}}});
  REQUIRE(rig.Launch().Wait() == 0);
  INFO(rig.Log("launcher"));
  REQUIRE(Has(rig.Log("launcher"), "of 1000 steps in"));
  REQUIRE(Has(rig.Log("launcher"), "with trainer.max_seconds=0"));
  const int64_t made = std::stoll(rig.RunFile("checkpoints/finished"));
  REQUIRE(made >= 3);
  REQUIRE(made < 1000);
  REQUIRE(LinesOfSteps(rig).size() == static_cast<size_t>(made));

  REQUIRE(rig.Launch().Wait() == 0);
  REQUIRE(Has(rig.Log("launcher"), "had finished its " + std::to_string(made) + " steps"));
  REQUIRE(rig.LeftBehind() == "");
}

TEST_CASE("a controller that is restarted goes on although it was told to start anew") {
  ClusterRig rig({.config = {{"trainer.resume_mode", "disable"}}});
  rig.SetFault("controller", 0, "train", 3);
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher") << rig.Log("controller"));
  REQUIRE(code == 0);
  REQUIRE(rig.FaultFired());
  REQUIRE(Has(rig.Log("launcher"), "restart 1 of 3"));
  REQUIRE(Has(rig.Log("launcher"), "resuming after step 2 of 3"));
  REQUIRE_FALSE(Has(rig.Log("controller"), "starting over"));
  REQUIRE(LinesOfSteps(rig) == std::map<int64_t, int>{{1, 1}, {2, 1}, {3, 1}});
  REQUIRE(rig.LeftBehind() == "");
}

TEST_CASE("a replayed step is tracked once") {
  ClusterRig rig({.config = {{"trainer.save_freq", "2"}, {"trainer.total_training_steps", "4"}}});
  rig.SetFault("trainer", 0, "train", 4);
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher"));
  REQUIRE(code == 0);
  REQUIRE(rig.FaultFired());
  REQUIRE(LinesOfSteps(rig) == std::map<int64_t, int>{{1, 1}, {2, 1}, {3, 1}, {4, 1}});

  // What was undone is not lost: it names the generation that made the steps again.
  const auto records = SqliteRunReader::Open(rig.run_dir() + "/run.db").value();
  REQUIRE(records->ListSteps({}).value().size() == 4);
  const auto undone = records->ListSteps({.undone = true}).value();
  REQUIRE(undone.size() == 1);
  REQUIRE(undone[0].step == 3);
  REQUIRE(undone[0].undone_by == 2);
  const auto samples = records->ListSamples({.step = 3, .undone_by = 2}).value();
  REQUIRE(samples.total > 0);
  REQUIRE(samples.total == records->ListSamples({.step = 3}).value().total);
  const auto line = nlohmann::json::parse(rig.RunFile("metrics.undone.jsonl"));
  REQUIRE(line.at("step") == 3);
  // Both attempts trained on the same samples.
  REQUIRE(line.at("data").at("critic/rewards/mean") ==
          rig.Metrics().at(3).at("critic/rewards/mean"));
}

TEST_CASE("an incomplete checkpoint is refused, with the file and the remedy") {
  ClusterRig rig({.config = {{"trainer.total_training_steps", "1"}}});
  REQUIRE(rig.Launch().Wait() == 0);
  const std::string step = rig.run_dir() + "/checkpoints/step_1";
  std::filesystem::remove(rig.run_dir() + "/checkpoints/finished");
  std::string removed;
  for (const auto& entry : std::filesystem::directory_iterator(step)) {
    if (Has(entry.path().filename(), "training_state")) removed = entry.path();
  }
  std::filesystem::remove(removed);
  int code = rig.Launch({"--grace", "5"}).Wait();
  INFO(rig.Log("launcher"));
  REQUIRE(code == 65);
  REQUIRE(Has(rig.Log("launcher"), removed + ": missing"));
  REQUIRE(Has(rig.Log("launcher"), "start over with trainer.resume_mode=disable"));
  REQUIRE(LinesOfSteps(rig) == std::map<int64_t, int>{{1, 1}});  // nothing is void yet

  rig.Set("trainer.resume_mode", "disable");
  code = rig.Launch().Wait();
  REQUIRE(code == 0);
  REQUIRE(rig.HasRunFile("checkpoints.previous/step_1"));
}

TEST_CASE("what differs at a resume is told on the terminal") {
  ClusterRig rig({.config = {{"trainer.total_training_steps", "2"}}});
  REQUIRE(rig.Launch().Wait() == 0);
  std::filesystem::remove(rig.run_dir() + "/checkpoints/finished");
  std::filesystem::remove(rig.run_dir() + "/checkpoints/step_2/controller_state.json");
  rig.Set("actor.optim.lr", "0.0007");
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher"));
  REQUIRE(code == 0);
  REQUIRE(Has(rig.Log("launcher"), "actor.optim.lr: 0.0005 -> 0.0007"));
  REQUIRE(Has(rig.Log("launcher"), "step_2 is not a complete checkpoint"));
  REQUIRE(Has(rig.Log("launcher"), "resuming from " + rig.run_dir() + "/checkpoints/step_1"));
}

TEST_CASE("a resume without Adam moments is told on the terminal") {
  ClusterRig rig({.config = {{"trainer.total_training_steps", "1"},
                             {"actor.checkpoint.save_contents", "[hf_model]"}}});
  REQUIRE(rig.Launch().Wait() == 0);
  REQUIRE_FALSE(Has(rig.Log("launcher"), "Adam moments"));
  rig.Set("trainer.total_training_steps", "2");
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher"));
  REQUIRE(code == 0);
  REQUIRE(Has(rig.Log("launcher"), "step_1 has no Adam moments"));
}

TEST_CASE("a checkpoint of another model is refused with the sizes") {
  ClusterRig rig({.config = {{"trainer.total_training_steps", "1"}}});
  REQUIRE(rig.Launch().Wait() == 0);
  ClusterRig larger({.model = {.hidden_size = 128}});
  rig.Set("model.path", larger.model_dir());
  rig.Set("trainer.total_training_steps", "2");
  const int code = rig.Launch({"--grace", "5"}).Wait();
  INFO(rig.Log("launcher") << rig.Log("controller"));
  REQUIRE(code == 65);
  REQUIRE(Has(rig.Log("controller"), "128 here"));
  REQUIRE(Has(rig.Log("controller"), "trainer.resume_mode=disable"));
  REQUIRE(rig.LeftBehind() == "");
}

}  // namespace
}  // namespace tandem::testing
