// When a run compares the rollouts' weights, and how it ends if they differ.
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "controller/run/check_only.h"
#include "tests/fakes/fake_run.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Says;
using When = CheckPolicy::When;
using testing::FakeRun;
using testing::TempDir;

const WeightCheckResult kOneWrong = {.version = 0,
                                     .expected = 3,
                                     .checked = 3,
                                     .mismatched = 1,
                                     .first_difference =
                                         "a.weight[2, 5]: the rollout holds 1, "
                                         "expected 2",
                                     .differing = {"a.weight"}};

// Weight checks of a run of `steps` steps that updates once a step, by the version after which.
std::vector<std::string> Checks(CheckPolicy policy, int64_t steps) {
  FakeRun run(1, 3, policy);
  run.options.total_steps = steps;
  REQUIRE(run.Run().ok());
  std::vector<std::string> checked;
  std::string version;
  for (const std::string& line : run.journal.Take()) {
    const size_t at = line.find("SyncWeights(");
    if (at != std::string::npos) version = line.substr(at + 12, 2);
    if (line.find("CheckWeights(") != std::string::npos) checked.push_back(version);
  }
  return checked;
}

using Versions = std::vector<std::string>;

std::string ReportOfCheck(const FakeRun& run) { return run.dir.path() / kCheckReport; }

nlohmann::json ReadReport(const FakeRun& run) {
  return nlohmann::json::parse(std::ifstream(ReportOfCheck(run)));
}

}  // namespace

TEST_CASE("Weights are checked never, first, at every Nth version or always", "[weight_check]") {
  REQUIRE(Checks({.when = When::kOff}, 5).empty());
  REQUIRE(Checks({.when = When::kFirst}, 5) == Versions{"v0"});
  REQUIRE(Checks({.when = When::kEvery, .every = 2}, 5) == Versions{"v0", "v2", "v4"});
  REQUIRE(Checks({.when = When::kAlways}, 3) == Versions{"v0", "v1", "v2", "v3"});
}

TEST_CASE("With every N a rollout's first weights are checked whatever the version",
          "[weight_check][recovery]") {
  FakeRun run(2, 3, {.when = When::kEvery, .every = 1000});
  run.options.total_steps = 1;
  run.DieAt({WorkerRole::kRollout, 1}, "Generate");
  REQUIRE(run.Run().ok());
  REQUIRE(run.journal.Count("trainer 0 CheckWeights(/model)") == 1);
  REQUIRE(run.journal.Count("trainer 0 CheckWeights()") == 1);
}

TEST_CASE("A check that finds a difference ends the run and names worker, tensor and values",
          "[weight_check]") {
  FakeRun run(1);
  run.check = kOneWrong;
  const absl::Status status = run.Run();
  REQUIRE(absl::IsDataLoss(status));
  REQUIRE(Says(status, "rollout 0 does not hold the weights it should (compared with "));
  REQUIRE(Says(status, "3 of 3 tensors checked, 0 missing, 0 unexpected, 1 mismatched; first: "));
  REQUIRE(Says(status, "a.weight[2, 5]: the rollout holds 1, expected 2"));
  REQUIRE(run.journal.Count("rollout 0 Generate(group 0, 4 samples, v0)") == 0);
}

TEST_CASE("A check that covers fewer tensors than there are, or none, fails", "[weight_check]") {
  for (const int64_t checked : {0, 2}) {
    FakeRun run(1);
    run.check = {.expected = 3, .checked = checked};
    REQUIRE(absl::IsDataLoss(run.Run()));
  }
  FakeRun run(1);
  run.check = {};
  REQUIRE(absl::IsDataLoss(run.Run()));
}

TEST_CASE("A replica that does not answer has not passed: it is checked when it is back",
          "[weight_check][recovery]") {
  FakeRun run(1);
  run.options.total_steps = 1;
  run.DieAt({WorkerRole::kRollout, 0}, "Wake", 1);
  run.journal.FailNext("trainer 0", "CheckWeights", absl::UnavailableError("no answer"));
  REQUIRE(run.Run().ok());
  REQUIRE(run.journal.Count("trainer 0 CheckWeights(/model)") >= 2);
  FakeRun stubborn(1, 0);
  stubborn.journal.FailNext("trainer 0", "CheckWeights", absl::UnavailableError("no answer"));
  REQUIRE_FALSE(stubborn.Run().ok());
}

TEST_CASE("Rollouts scramble their weights at an incarnation's first sync, always, or never",
          "[weight_check]") {
  const auto scrambles = [](ScrambleMode mode) {
    FakeRun run(2, 3, {}, mode);
    run.options.total_steps = 2;
    run.DieAt({WorkerRole::kRollout, 1}, "Generate");
    REQUIRE(run.Run().ok());
    std::vector<int> ranks;
    for (const std::string& line : run.journal.Take()) {
      if (line.find("scramble") != std::string::npos) ranks.push_back(line[8] - '0');
    }
    std::sort(ranks.begin(), ranks.end());
    return ranks;
  };
  REQUIRE(scrambles(ScrambleMode::kOff).empty());
  REQUIRE(scrambles(ScrambleMode::kFirst) == std::vector<int>{0, 1, 1});
  REQUIRE(scrambles(ScrambleMode::kAlways) == std::vector<int>{0, 0, 0, 1, 1, 1, 1});
}

TEST_CASE("A check alone syncs once, compares, reports and touches nothing else",
          "[weight_check][check_only]") {
  FakeRun run(2, 3, {.when = When::kOff});
  run.Prepare(StartMode::kTrain);
  const StepContext parts = run.Parts();
  Recovery recovery(parts, run.options);
  REQUIRE(CheckOnly(parts, recovery, "", ReportOfCheck(run)).ok());
  REQUIRE(run.journal.Count("trainer 1 CheckWeights(/model)") == 1);
  for (const std::string& line : run.journal.Take()) {
    for (const char* call : {"Generate", "ForwardBackward", "OptimizerStep", "SaveState"}) {
      REQUIRE(line.find(call) == std::string::npos);
    }
  }
  REQUIRE(run.store.steps.empty());
  const auto& messages = run.progress.messages;
  REQUIRE(messages.at(0) == "weight check of version 0 against /model");
  REQUIRE(messages.at(1).find("rollout 0, version ") == 0);
  REQUIRE(messages.at(2).find("rollout 1, version ") == 0);
  REQUIRE(messages.at(3) == "weights agree");
  REQUIRE(messages.at(4) == "report " + ReportOfCheck(run));
  const nlohmann::json report = ReadReport(run);
  REQUIRE(report.at("ok") == true);
  REQUIRE(report.at("version") == 0);
  REQUIRE(report.at("oracle") == "/model");
  REQUIRE(report.at("workers").size() == 2);
  REQUIRE(report.at("workers")[1].at("rank") == 1);
  REQUIRE(report.at("workers")[1].at("checked") == 3);
}

TEST_CASE("under LoRA a check names the files that it reads, of the start and of a checkpoint",
          "[weight_check][check_only][lora]") {
  const auto starts_with = [](bool merged, const std::string& adapter_path) {
    return MakeAdapterCheckFiles({.model_dir = "/base"}, merged, adapter_path)->Find("");
  };
  REQUIRE(starts_with(true, "") == "/base");
  REQUIRE(starts_with(false, "").empty());  // no file has A
  REQUIRE(starts_with(true, "/adapter") == "/adapter");
  REQUIRE(starts_with(false, "/adapter") == "/adapter");

  for (const bool merged : {true, false}) {
    const TempDir dir;
    const auto files = MakeAdapterCheckFiles({.model_dir = "/base"}, merged, "/adapter");
    const std::string step = dir.path() / "step_7";
    std::filesystem::create_directories(step + "/lora_adapter");
    std::ofstream(step + "/lora_adapter/adapter_config.json") << "{}";
    const std::string adapter = step + "/lora_adapter";
    // Adapters alone were saved.
    REQUIRE(files->Find(step) == adapter);
    REQUIRE(files->Describe(adapter) == "/base with the adapter of " + adapter);
    REQUIRE(files->Describe("") == "/base with the trainers' adapters");
    std::ofstream(step + "/config.json") << "{}";
    REQUIRE(files->Find(step) == (merged ? step : adapter));
    REQUIRE(files->Describe(step) == (merged ? step : "/base with the adapter of " + adapter));
    // An export in bf16 is not what float32 serves.
    REQUIRE(MakeAdapterCheckFiles({.model_dir = "/base", .exact_export = false}, merged, "")
                ->Find(step) == adapter);
    FakeRun run(1, 3, {.when = When::kOff}, ScrambleMode::kOff,
                MakeAdapterCheckFiles({.model_dir = "/base"}, merged, "/adapter"));
    const auto none = run.weights.Check("/nope");
    REQUIRE(absl::IsNotFound(none.status()));
    REQUIRE(Says(none.status(), "/nope: there is no such directory"));
  }
}

TEST_CASE("a full run's check reads the model, and then the checkpoint's export where it is exact",
          "[weight_check][check_only]") {
  const TempDir dir;
  const std::string step = dir.path() / "step_7";
  std::filesystem::create_directories(step);
  const auto exact = MakeFullCheckFiles({.model_dir = "/model"});
  REQUIRE(exact->Find("") == "/model");
  REQUIRE(exact->Find(step).empty());  // nothing was exported
  std::ofstream(step + "/config.json") << "{}";
  REQUIRE(exact->Find(step) == step);
  REQUIRE(MakeFullCheckFiles({.model_dir = "/model", .exact_export = false})->Find(step).empty());
  REQUIRE(exact->Describe("") == "the trainers");
  REQUIRE(exact->Describe(step) == step);
  REQUIRE(exact->Check("/nope").ok());  // the trainers report it
}

TEST_CASE("A check alone that fails reports every rollout and is data loss",
          "[weight_check][check_only]") {
  FakeRun run(2, 3, {.when = When::kOff});
  run.check = kOneWrong;
  run.Prepare(StartMode::kTrain);
  const StepContext parts = run.Parts();
  Recovery recovery(parts, run.options);
  const absl::Status status = CheckOnly(parts, recovery, "", ReportOfCheck(run));
  REQUIRE(absl::IsDataLoss(status));
  REQUIRE(Says(status, "rollout 0"));
  REQUIRE_FALSE(recovery.failed_loading());
  REQUIRE(run.progress.messages.size() == 4);
  REQUIRE(run.progress.messages.at(2).find("\n  differs: a.weight") != std::string::npos);
  const nlohmann::json report = ReadReport(run);
  REQUIRE(report.at("ok") == false);
  REQUIRE(report.at("workers")[0].at("mismatched") == 1);
  REQUIRE(report.at("workers")[0].at("first_difference") == kOneWrong.first_difference);
  REQUIRE(report.at("workers")[0].at("differing") == kOneWrong.differing);
}

TEST_CASE("A check alone does not wait for a replica that does not answer: it has failed",
          "[weight_check][check_only]") {
  FakeRun run(2, 3, {.when = When::kOff});
  run.journal.FailNext("trainer 1", "CheckWeights", absl::UnavailableError("no answer"));
  run.Prepare(StartMode::kTrain);
  const StepContext parts = run.Parts();
  Recovery recovery(parts, run.options);
  std::ofstream(ReportOfCheck(run)) << "of an earlier check";
  REQUIRE(absl::IsUnavailable(CheckOnly(parts, recovery, "", ReportOfCheck(run))));
  REQUIRE(run.progress.messages.empty());
  REQUIRE_FALSE(std::filesystem::exists(ReportOfCheck(run)));
}

}  // namespace tandem
