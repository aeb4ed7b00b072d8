#include "controller/cli/reading_commands.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "common/formats/files.h"
#include "controller/cli/report_command.h"
#include "controller/cli/runs_command.h"
#include "controller/store/checkpoint_index.h"
#include "controller/store/post_mortem/blackbox.h"
#include "controller/store/sqlite/sqlite_run_store.h"
#include "controller/view/run_dir_view.h"
#include "tandem/v1/controller.pb.h"
#include "tests/fakes/fake_clock.h"
#include "tests/support/large_store.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {

using testing::Has;

namespace {

std::string ListedSteps(const std::string& run_dir, const StepsOptions& options, bool json) {
  const auto view = RunDirView::Open(run_dir).value();
  std::ostringstream out;
  REQUIRE(ReadingCommands(*view, json, out).Steps(options).ok());
  return out.str();
}

}  // namespace

TEST_CASE("The steps of a run are listed from its records, which stay as they are", "[ctl]") {
  const testing::TempDir dir;
  const std::string database = dir.path() / "run.db";
  {
    const auto store = SqliteRunStore::Open(database).value();
    for (int64_t step = 1; step <= 3; ++step) {
      REQUIRE(store
                  ->RecordStep({.step = step,
                                .version = step,
                                .metrics = {{kRewardMean, 0.125 * static_cast<double>(step)}},
                                .phases = {{.phase = "train", .seconds = 2.5}}})
                  .ok());
    }
    REQUIRE(store->UndoAfter(2, 4).ok());
  }
  const std::string before = ReadWholeFile(database).value();
  const auto listed = [&](const StepsOptions& options, bool json = false) {
    return ListedSteps(dir.path(), options, json);
  };
  const std::string all = listed({});
  REQUIRE(Has(all, "0.125"));
  REQUIRE(Has(all, "0.25"));
  REQUIRE_FALSE(Has(all, "0.375"));
  REQUIRE_FALSE(Has(listed({.first_step = 2}), "0.125"));
  REQUIRE(Has(listed({.undone = true}), "generation 4"));
  REQUIRE(listed({.last_step = 2, .undone = true}) == "no step was undone\n");
  const std::string json = listed({}, true);
  REQUIRE(Has(json, "\"step\":\"2\""));
  REQUIRE(Has(json, "\"seconds\":2.5"));
  REQUIRE(ReadWholeFile(database).value() == before);
}

TEST_CASE("A step that is asked for alone comes with its distributions", "[ctl]") {
  const testing::TempDir dir;
  const std::string database = dir.path() / "run.db";
  {
    const auto store = SqliteRunStore::Open(database).value();
    Histogram lengths{.low = 2, .high = 34};
    for (const double length : {2.0, 2.0, 3.0, 34.0}) lengths.Add(length);
    Histogram rewards{.low = 1, .high = 1};
    rewards.Add(1);
    for (const int64_t step : {1, 2}) {
      REQUIRE(store
                  ->RecordStep(
                      {.step = step,
                       .metrics = {{kRewardMean, 0.25}},
                       .histograms = {{kLengthHistogram, lengths}, {kRewardHistogram, rewards}}})
                  .ok());
    }
    REQUIRE(store->RecordStep({.step = 3}).ok());
    REQUIRE(store->UndoAfter(2, 4).ok());
  }
  const std::string shown = ListedSteps(dir.path(), {.newest = 20, .step = 1}, false);
  INFO(shown);
  REQUIRE(Has(shown, "0.25"));
  REQUIRE(Has(shown,
              "\nlength            4       2       34  █▄"
              "·····························▄\n"));
  REQUIRE(Has(shown, "\nreward            1       1        1  █"));
  REQUIRE_FALSE(Has(ListedSteps(dir.path(), {}, false), "distribution"));
  const std::string json = ListedSteps(dir.path(), {.step = 2}, true);
  REQUIRE(Has(json, "\"name\":\"length\",\"low\":2,\"high\":34,\"counts\":[\"2\",\"1\",\"0\""));
  REQUIRE_FALSE(Has(json, "\"step\":\"1\""));
  REQUIRE(
      Has(ListedSteps(dir.path(), {.undone = true, .step = 3}, false),
          "step 3 has no distributions and no updates: a build before schema version 6 of run.db"));
  const auto view = RunDirView::Open(dir.path()).value();
  std::ostringstream out;
  const absl::Status none = ReadingCommands(*view, false, out).Steps({.step = 9});
  REQUIRE(absl::IsNotFound(none));
  REQUIRE(Has(std::string(none.message()), "no step 9 in this run"));
}

TEST_CASE("Samples are listed by step, by prompt, of a validation, and those that were dropped",
          "[ctl]") {
  const testing::TempDir dir;
  const auto store = SqliteRunStore::Open(dir.path() / "run.db").value();
  const SampleRecord first{.sample_id = 1,
                           .prompt = "one",
                           .response = "uno",
                           .prompt_tokens = 17,
                           .min_log_prob = -2.5,
                           .repetition = 0.125,
                           .arrived_us = 1};
  const SampleRecord second{.sample_id = 2, .group = 1, .prompt = "two", .response = "due"};
  const SampleRecord dropped{.sample_id = 3, .group = 2, .prompt = "three", .evicted = true};
  for (const int64_t step : {1, 2}) {
    REQUIRE(store->RecordSamples(step, {first, second, dropped}).ok());
    REQUIRE(
        store
            ->RecordStep(
                {.step = step,
                 .groups = {{.group = 0}, {.group = 1}, {.group = 2, .kind = GroupKind::kEvicted}}})
            .ok());
  }
  REQUIRE(
      store->RecordEvaluation({.step = 0, .responses = {{.prompt = "v", .response = "a"}}}).ok());
  REQUIRE(
      store->RecordEvaluation({.step = 2, .responses = {{.prompt = "v", .response = "b"}}}).ok());
  const auto view = RunDirView::Open(dir.path()).value();
  const auto listed = [&](const SamplesOptions& options, bool json = false) {
    std::ostringstream out;
    const absl::Status status = ReadingCommands(*view, json, out).Samples(options);
    return status.ok() ? out.str() : std::string(status.message());
  };
  const std::string newest = listed({});
  INFO(newest);
  REQUIRE(Has(newest, "17            -2.5     0.125          1\n"));
  REQUIRE(Has(newest, "due"));
  REQUIRE_FALSE(Has(newest, "three"));
  REQUIRE(Has(newest, "3 groups: 2 mixed, 1 evicted\n2 of 2 samples\n"));
  const std::string of_prompt = listed({.prompt_id = 1});
  REQUIRE(Has(of_prompt, "step\n"));
  REQUIRE(Has(of_prompt, "2 of 2 samples\n"));
  REQUIRE_FALSE(Has(of_prompt, "due"));
  REQUIRE(Has(listed({.step = 2, .prompt_id = 1}), "1 of 1 samples\n"));
  const std::string evicted = listed({.step = 1, .evicted = true});
  REQUIRE(Has(evicted, "three"));
  REQUIRE(Has(evicted, "  evicted  "));
  REQUIRE_FALSE(Has(evicted, "steps_with_texts"));
  REQUIRE(Has(listed({.evaluation = true}), "\nv              b "));
  REQUIRE(Has(listed({.step = 0, .evaluation = true}), "\nv              a "));
  const std::string json = listed({.limit = 1}, true);
  REQUIRE(Has(json, "\"min_log_prob\":-2.5,\"repetition\":0.125"));
  REQUIRE(Has(json, "\"arrived_at\":\"1970-01-01T00:00:00.000001Z\""));
  // Why there are none.
  REQUIRE(Has(listed({.step = 9}), "no step 9 in this run"));
  REQUIRE(Has(listed({.prompt_id = 99}), "no sample has the prompt 99"));
  REQUIRE(Has(listed({.step = 9, .evicted = true}), "dropped no sample of step 9"));
  REQUIRE(Has(listed({.step = 1, .evaluation = true}), "no response of a validation after step 1"));
}

TEST_CASE("Steps that no checkpoint has are named below the steps, also of a run that has moved",
          "[ctl]") {
  const testing::TempDir dir;
  const std::string run_dir = dir.path() / "moved", elsewhere = dir.path() / "elsewhere";
  REQUIRE(MakeFolder(run_dir).ok());
  const auto store = SqliteRunStore::Open(run_dir + "/run.db").value();
  const auto started_with = [&](const std::string& checkpoints) {
    REQUIRE(store
                ->RecordRun({.run_id = "r" + checkpoints,
                             .run_dir = "/before",
                             .started_at = checkpoints,
                             .config_yaml = "trainer:\n  default_local_dir: " + checkpoints})
                .ok());
  };
  for (const int64_t step : {1, 2, 3}) REQUIRE(store->RecordStep({.step = step}).ok());
  const auto listed = [&](const StepsOptions& options, bool json = false) {
    return ListedSteps(run_dir, options, json);
  };
  REQUIRE(Has(listed({}), "\nsteps 1 to 3 are in no checkpoint (none is complete in " + run_dir +
                              "/checkpoints): a start that continues the run makes them again\n"));
  const auto save = [](const std::string& folder, int64_t step) {
    auto checkpoints = CheckpointIndex::Open(folder, 0).value();
    REQUIRE(checkpoints.Begin(step).ok());
    REQUIRE(checkpoints.Commit(step, {.step = step}).ok());
  };
  save(run_dir + "/saved", 2);
  started_with("/before/saved");
  REQUIRE(Has(listed({}), "\nstep 3 is in no checkpoint (the newest in " + run_dir +
                              "/saved is of step 2): a start that continues the run makes it"));
  REQUIRE_FALSE(Has(listed({.last_step = 2}), "in no checkpoint"));
  REQUIRE_FALSE(Has(listed({}, true), "in no checkpoint"));
  std::ostringstream out;
  REQUIRE(ReportCommand({.run_dir = run_dir}, out).ok());
  REQUIRE(Has(out.str(), "step 3 is in no checkpoint"));
  REQUIRE(Has(ReadWholeFile(run_dir + "/report.html").value(), "step 3 is in no checkpoint"));
  save(elsewhere, 3);
  started_with(elsewhere);
  REQUIRE_FALSE(Has(listed({}), "in no checkpoint"));
}

TEST_CASE("The steps of a directory without a run are refused", "[ctl]") {
  const testing::TempDir dir;
  REQUIRE(absl::IsNotFound(RunDirView::Open(dir.path()).status()));
}

TEST_CASE("The newest steps are listed, with the metrics that are asked for, page by page",
          "[ctl]") {
  const testing::TempDir dir;
  const std::string database = dir.path() / "run.db";
  REQUIRE(SqliteRunStore::Open(database).ok());
  REQUIRE(testing::FillStore(database, {.steps = 2500, .samples = 2, .all_sampled = false}).ok());
  const std::string before = ReadWholeFile(database).value();
  const std::string newest = ListedSteps(dir.path(), {.newest = 20}, false);
  REQUIRE(Has(newest, "\n2481 "));
  REQUIRE(Has(newest, "\n2500 "));
  REQUIRE_FALSE(Has(newest, "\n2480 "));
  REQUIRE(Has(newest, "earlier steps: tandemctl steps --to 2480 --last 20\n"));
  REQUIRE(Has(
      ListedSteps(dir.path(),
                  {.first_step = 7,
                   .newest = 2,
                   .metrics = {"critic/rewards/mean", "some/metric/of/a/step_1"},
                   .run_words = CommandWords("", "runs/a run's") +
                                CommandWords("--address", "unix:/x") + CommandWords("--runs", "")},
                  false),
      "earlier steps: tandemctl steps 'runs/a run'\\''s' --address unix:/x --from 7 "
      "--to 2498 --last 2 --metrics critic/rewards/mean,some/metric/of/a/step_1\n"));
  const std::string named =
      ListedSteps(dir.path(), {.newest = 2, .metrics = {"critic/rewards/mean"}}, false);
  REQUIRE(Has(named, "critic/rewards/mean"));
  REQUIRE(Has(named, "\n2500 "));
  REQUIRE(Has(named, " 0.5\n"));
  // All of them are more than an answer holds.
  const std::string all = ListedSteps(dir.path(), {}, true);
  REQUIRE(Has(all, "\"step\":\"1\""));
  REQUIRE(Has(all, "\"step\":\"2500\""));
  const auto view = RunDirView::Open(dir.path()).value();
  std::ostringstream out;
  const absl::Status unknown =
      ReadingCommands(*view, false, out).Steps({.newest = 2, .metrics = {"no/such"}});
  REQUIRE(absl::IsNotFound(unknown));
  REQUIRE(Has(std::string(unknown.message()), "critic/rewards/mean"));
  v1::ListStepsRequest request;
  REQUIRE(view->ListSteps(request).value().ByteSizeLong() < 4 << 20);
  REQUIRE(ReadWholeFile(database).value() == before);
}

TEST_CASE("A run of schema version 4 opens in every command, and stays as it is", "[ctl]") {
  const testing::TempDir dir;
  const std::string database = dir.path() / "run.db";
  std::filesystem::copy_file("tests/controller/store/sqlite/data/schema_4.db", database);
  const std::string before = ReadWholeFile(database).value();
  const auto view = RunDirView::Open(dir.path()).value();
  std::ostringstream out;
  ReadingCommands commands(*view, false, out);
  REQUIRE(commands.ShowStatus().ok());
  REQUIRE(Has(out.str(), "run tandem/old/20260102-110000  unknown  phase -  step 3/4"));
  REQUIRE(Has(out.str(), "start -"));
  REQUIRE(Has(out.str(), "recorded no ends of runs"));
  REQUIRE(commands.Steps({.metrics = {"actor/entropy"}}).ok());
  REQUIRE(commands.Samples({}).ok());
  REQUIRE(Has(out.str(), "4 of 4 samples"));
  REQUIRE_FALSE(Has(out.str(), "groups:"));
  REQUIRE(commands.Memory({}).ok());
  REQUIRE(ReportCommand({.run_dir = dir.path()}, out).ok());
  REQUIRE(RunsCommand(dir.path(), false, out).ok());
  REQUIRE(Has(out.str(), "3/4"));
  REQUIRE(ReadWholeFile(database).value() == before);
}

TEST_CASE("The list of runs has a row for each, and says which cannot be read", "[ctl]") {
  const testing::TempDir dir;
  std::ostringstream out;
  REQUIRE(absl::IsNotFound(RunsCommand(dir.path(), false, out)));
  REQUIRE(MakeFolder(dir.path() / "project/good").ok());
  REQUIRE(MakeFolder(dir.path() / "bad").ok());
  {
    const auto store = SqliteRunStore::Open(dir.path() / "project/good/run.db").value();
    REQUIRE(store
                ->RecordRun({.run_id = "p/good/1",
                             .total_steps = 2,
                             .ended_at = "2026-01-02T03:04:05Z",
                             .outcome = RunOutcome::kFinished})
                .ok());
    REQUIRE(store->RecordStep({.step = 2, .metrics = {{kRewardMean, 0.75}}}).ok());
  }
  REQUIRE(MakeFolder(dir.path() / "new").ok());
  REQUIRE(SqliteRunStore::Open(dir.path() / "new/run.db")
              .value()
              ->RecordRun({.run_id = "p/new/1", .started_at = "2026-01-01T00:00:00Z"})
              .ok());
  std::ofstream(dir.path() / "bad/run.db") << std::string(4096, 'x');
  REQUIRE(RunsCommand(dir.path(), false, out).ok());
  REQUIRE(Has(out.str(), "p/good/1"));
  REQUIRE(Has(out.str(), "finished"));
  REQUIRE(Has(out.str(), "2/2"));
  REQUIRE(Has(out.str(), "0.75"));
  REQUIRE(Has(out.str(), "bad: "));
  std::ostringstream json;
  REQUIRE(RunsCommand(dir.path(), true, json).ok());
  const auto runs = nlohmann::json::parse(json.str()).at("runs");
  REQUIRE(runs.size() == 3);
  // The newest sign first; what cannot be read has none.
  REQUIRE(runs[0].at("run_id") == "p/good/1");
  REQUIRE(runs[0].at("state") == "finished");
  REQUIRE(runs[0].at("reward") == 0.75);
  REQUIRE(runs[0].at("error") == "");
  REQUIRE_FALSE(runs[0].contains("unreadable"));
  REQUIRE(runs[1].at("run_id") == "p/new/1");
  REQUIRE(runs[1].at("reward").is_null());
  REQUIRE(runs[2].at("run_dir") == (dir.path() / "bad").string());
  REQUIRE(Has(runs[2].at("unreadable").get<std::string>(), "run.db"));
  REQUIRE_FALSE(runs[2].contains("error"));
}

TEST_CASE("The status of files is UTF-8, whatever bytes they have, and says when a phase began",
          "[ctl]") {
  const testing::TempDir dir;
  testing::FakeClock clock;
  REQUIRE(MakeFolder(dir.path() / "logs").ok());
  std::ofstream(dir.path() / "logs/controller-0.log") << "bad \xff byte\n";
  {
    // A character of two bytes begins in the last byte that is kept.
    const auto box =
        Blackbox::Open(dir.path() / "blackbox", std::string(63, 'r') + "\u00e4", clock).value();
    box->NotePhase(1, "train");
    // What a kill leaves: no end is noted.
    std::filesystem::copy_file(dir.path() / "blackbox", dir.path() / "left");
  }
  std::filesystem::rename(dir.path() / "left", dir.path() / "blackbox");
  const auto view = RunDirView::Open(dir.path()).value();
  const v1::GetStatusResponse status = view->GetStatus().value();
  REQUIRE(status.logs(0).lines(0) == "bad \uFFFD byte");
  REQUIRE(status.run_id() == std::string(63, 'r') + "\uFFFD");
  REQUIRE(status.phase_began_at() == status.as_of());
  std::ostringstream out;
  REQUIRE(ReadingCommands(*view, false, out).ShowStatus().ok());
  REQUIRE(Has(out.str(), "phase train began at " + status.as_of()));
}

}  // namespace tandem
