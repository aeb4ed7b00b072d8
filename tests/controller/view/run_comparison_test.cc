#include "controller/view/run_comparison.h"

#include <cmath>
#include <filesystem>
#include <functional>
#include <string>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "common/config/config.h"
#include "controller/store/batch_file.h"
#include "controller/store/sqlite/sqlite_run_store.h"
#include "controller/view/run_dir_view.h"
#include "tandem/v1/config.pb.h"
#include "tests/controller/store/some_batch.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

// What a test changes of a run of three steps.
struct RunChange {
  std::function<void(v1::Config&)> config = [](v1::Config&) {};
  std::function<void(StepRecord&)> step = [](StepRecord&) {};
  std::function<void(SampleRecord&)> sample = [](SampleRecord&) {};
  std::function<void(SavedSample&)> tokens;  // empty: the run keeps no tokens
};

class TwoRuns {
 public:
  void Make(const std::string& name, const RunChange& change) {
    const std::filesystem::path run = dir_.path() / name;
    std::filesystem::create_directories(run / "samples");
    const auto store = SqliteRunStore::Open(run / "run.db").value();
    v1::Config config = DefaultConfig();
    config.mutable_cluster()->set_run_dir(run.string());
    change.config(config);
    REQUIRE(store->RecordRun({.run_id = name, .config_yaml = ConfigToYaml(config)}).ok());
    for (int64_t number = 1; number <= 3; ++number) {
      StepRecord step = {.step = number,
                         .metrics = {{kLoss, 0.5}, {kRewardMean, 0.25}, {kStepSeconds, 1.5}},
                         .syncs = {{.version = number, .digest = "abcd"}}};
      change.step(step);
      REQUIRE(store->RecordStep(step).ok());
      SampleRecord sample;
      sample.step = number;
      sample.sample_id = 7;
      sample.response = "answer";
      sample.reward = 1;
      change.sample(sample);
      REQUIRE(store->RecordSamples(number, {sample}).ok());
      if (change.tokens) WriteTokens(run, number, change.tokens);
    }
  }

  RunComparison Compare(int64_t step = 0) {
    const auto a = RunDirView::Open(dir_.path() / "a").value();
    const auto b = RunDirView::Open(dir_.path() / "b").value();
    auto comparison = CompareRuns(*a, *b, step);
    REQUIRE(comparison.ok());
    return *std::move(comparison);
  }

  absl::Status ErrorAt(int64_t step) {
    const auto a = RunDirView::Open(dir_.path() / "a").value();
    return CompareRuns(*a, *a, step).status();
  }

 private:
  static void WriteTokens(const std::filesystem::path& run,
                          int64_t step,
                          const std::function<void(SavedSample&)>& change) {
    const auto writer =
        BatchWriter::Create(run / "samples" / fmt::format("step_{:06}.samples", step)).value();
    SavedSample sample = testing::SomeSample(7, 0, 4);
    if (step == 2) change(sample);
    REQUIRE(writer->Add(sample).ok());
    REQUIRE(writer->Commit(testing::SomeInfo()).ok());
  }

  testing::TempDir dir_;
};

}  // namespace

TEST_CASE("Equal runs differ in nothing but time and place", "[compare]") {
  TwoRuns runs;
  runs.Make("a", {.tokens = [](SavedSample&) {}});
  runs.Make("b", {.step = [](StepRecord& step) { step.metrics[kStepSeconds] = 9; },
                  .tokens = [](SavedSample&) {}});
  const RunComparison comparison = runs.Compare();
  REQUIRE_FALSE(comparison.difference);
  REQUIRE(comparison.config.empty());
  REQUIRE(comparison.first_step == 1);
  REQUIRE(comparison.last_step == 3);
  REQUIRE(comparison.last.front().name == kRewardMean);
}

TEST_CASE("The first token that differs is named with both values", "[compare]") {
  TwoRuns runs;
  runs.Make("a", {.tokens = [](SavedSample&) {}});
  runs.Make("b", {.config = [](v1::Config& config) { config.mutable_rollout()->set_n(99); },
                  .tokens =
                      [](SavedSample& sample) {
                        sample.tokens[5] = 77;
                        sample.log_probs[0] = -9;
                      }});
  const RunComparison comparison = runs.Compare();
  REQUIRE(comparison.difference->step == 2);
  REQUIRE(comparison.difference->what == "tokens");
  REQUIRE(comparison.difference->place == "sample 1 of group 0, token 2 of the response");
  REQUIRE(comparison.difference->a == "2");
  REQUIRE(comparison.difference->b == "77");
  REQUIRE(comparison.config.size() == 1);
  REQUIRE(comparison.config[0].key == "rollout.n");
  REQUIRE(comparison.config[0].b == "99");
  REQUIRE_FALSE(runs.Compare(1).difference);
  REQUIRE(runs.Compare(2).difference);
}

TEST_CASE("A log-prob that differs by a bit is a difference", "[compare]") {
  TwoRuns runs;
  runs.Make("a", {.tokens = [](SavedSample&) {}});
  runs.Make("b", {.tokens = [](SavedSample& sample) {
              sample.log_probs[3] = std::nextafter(sample.log_probs[3], 0.0f);
            }});
  const RunDifference found = *runs.Compare().difference;
  REQUIRE(found.what == "log_probs");
  REQUIRE(found.place == "sample 1 of group 0, token 3 of the response");
  REQUIRE(found.a == "-3.5");
  REQUIRE(found.b != found.a);
}

TEST_CASE("Without tokens, texts and rewards are compared; then weights and metrics", "[compare]") {
  const auto difference = [](const RunChange& change) {
    TwoRuns runs;
    runs.Make("a", {});
    runs.Make("b", change);
    return *runs.Compare().difference;
  };
  const RunDifference text = difference({.sample = [](SampleRecord& sample) {
    if (sample.step == 3) sample.response = "another";
  }});
  REQUIRE(text.step == 3);
  REQUIRE(text.what == "response");
  REQUIRE(text.b == "another");
  REQUIRE(difference({.sample = [](SampleRecord& sample) { sample.reward = 0; }}).what == "reward");
  REQUIRE(difference({.sample = [](SampleRecord& sample) { sample.sample_id = 8; }}).what ==
          "samples");
  const RunDifference weights = difference({.step = [](StepRecord& step) {
    step.syncs[0].digest = "ef";
    step.metrics[kLoss] = 0.75;
  }});
  REQUIRE(weights.what == "weights");
  REQUIRE(weights.place == "version 1");
  const RunDifference metric =
      difference({.step = [](StepRecord& step) { step.metrics[kLoss] = 0.75; }});
  REQUIRE(metric.what == "metric");
  REQUIRE(metric.place == kLoss);
  REQUIRE(metric.a == "0.5");
  const RunDifference missing =
      difference({.step = [](StepRecord& step) { step.metrics["actor/another"] = 1; }});
  REQUIRE(missing.place == "actor/another");
  REQUIRE(missing.a == "none");
}

TEST_CASE("A step that a run does not have cannot be compared", "[compare]") {
  TwoRuns runs;
  runs.Make("a", {});
  REQUIRE(absl::IsFailedPrecondition(runs.ErrorAt(4)));
  REQUIRE(runs.ErrorAt(3).ok());
}

}  // namespace tandem
