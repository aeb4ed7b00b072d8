#include "controller/store/sqlite/sqlite_run_store.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include <catch2/catch.hpp>

#include "controller/store/record_pages.h"
#include "controller/store/sqlite/database.h"
#include "controller/store/sqlite/run_reader.h"
#include "tests/controller/store/sqlite/older_store.h"
#include "tests/support/temp_dir.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)

namespace {

StepRecord MakeStepRecord(int64_t step, double reward) {
  StepRecord record;
  record.step = step;
  record.version = step;
  record.metrics = {{"reward/mean", reward}, {"broken", std::nan("")}};
  record.phases = {{.phase = "generate", .seconds = 1.5, .peak_bytes = 1000},
                   {.phase = "train", .seconds = 2.5, .peak_bytes = 3000}};
  record.phases[1].workers = {{true,
                               1,
                               {.entries = {{"master", Location::kFile, 7, 8}},
                                .memory_peak_bytes = 2000,
                                .resident_bytes = 1500,
                                .driver_total_bytes = 9000,
                                .driver_free_bytes = 4000}}};
  record.finished_at = "2026-01-02T03:04:05Z";
  return record;
}

SampleRecord MakeSampleRecord(int64_t step, uint64_t id) {
  SampleRecord sample;
  sample.step = step;
  sample.sample_id = id;
  sample.prompt = "What is 'x'; DROP TABLE steps?";
  sample.response = std::string("null \0 byte", 11);
  sample.reward = 0.5;
  sample.finish_reason = FinishReason::kLength;
  sample.reward_terms = {{"score", 1.0}};
  sample.segments = {{0, 120, true, 3}, {120, 57, false, 4}};
  return sample;
}

std::string PathIn(const testing::TempDir& dir) { return (dir.path() / "run.db").string(); }

}  // namespace

TEST_CASE("SqliteRunStore keeps what was recorded over a reopening", "[store]") {
  const testing::TempDir dir;
  {
    auto store = SqliteRunStore::Open(PathIn(dir)).value();
    REQUIRE(store->RecordRun({.run_id = "r"}).ok());
    REQUIRE(store->RecordStep(MakeStepRecord(1, 0.25)).ok());
    REQUIRE(
        store->RecordSamples(1, {MakeSampleRecord(1, uint64_t{1} << 63), MakeSampleRecord(1, 5)})
            .ok());
    REQUIRE(store->RecordEvaluation({.step = 0, .prompts = 4, .metrics = {{"m", 0.5}}}).ok());
  }
  auto store = SqliteRunStore::Open(PathIn(dir)).value();
  const auto steps = store->ListSteps({.first_step = 1}).value();
  REQUIRE(steps.size() == 1);
  REQUIRE(steps[0].metrics.at("reward/mean") == 0.25);
  REQUIRE(std::isnan(steps[0].metrics.at("broken")));
  REQUIRE(steps[0].phases[1].phase == "train");
  REQUIRE(steps[0].phases[1].peak_bytes == 3000);
  REQUIRE(steps[0].phases[0].workers.empty());
  const WorkerMemory worker = steps[0].phases[1].workers.at(0);
  REQUIRE(worker.trainer);
  REQUIRE(worker.rank == 1);
  REQUIRE(worker.ledger.memory_peak_bytes == 2000);
  REQUIRE(worker.ledger.resident_bytes == 1500);
  REQUIRE(worker.ledger.driver_total_bytes == 9000);
  REQUIRE(worker.ledger.driver_free_bytes == 4000);
  REQUIRE(worker.ledger.entries.at(0).location == Location::kFile);
  REQUIRE(worker.ledger.entries.at(0).peak_bytes == 8);
  const auto page = store->ListSamples({.step = 1}).value();
  REQUIRE(page.total == 2);
  REQUIRE(page.samples[1].sample_id == 5);
  REQUIRE(page.samples[1].response == std::string("null \0 byte", 11));
  REQUIRE(page.samples[1].finish_reason == FinishReason::kLength);
  REQUIRE(page.samples[1].segments.size() == 2);
  const Segment& segment = page.samples[1].segments[1];
  REQUIRE(segment.begin == 120);
  REQUIRE(segment.length == 57);
  REQUIRE_FALSE(segment.trained);
  REQUIRE(segment.weight_version == 4);
  REQUIRE(store->ListEvaluations({}).value()[0].metrics.at("m") == 0.5);
}

TEST_CASE("Recording a step again replaces its rows", "[store]") {
  const testing::TempDir dir;
  auto store = SqliteRunStore::Open(PathIn(dir)).value();
  REQUIRE(store->RecordStep(MakeStepRecord(3, 0.1)).ok());
  REQUIRE(store
              ->RecordSamples(
                  3, {MakeSampleRecord(3, 1), MakeSampleRecord(3, 2), MakeSampleRecord(3, 3)})
              .ok());
  REQUIRE(store->RecordStep(MakeStepRecord(3, 0.9)).ok());
  REQUIRE(store->RecordSamples(3, {MakeSampleRecord(3, 1)}).ok());
  REQUIRE(store->ListSteps({.first_step = 1}).value().size() == 1);
  REQUIRE(store->ListSteps({.first_step = 1}).value()[0].metrics.at("reward/mean") == 0.9);
  REQUIRE(store->ListSteps({.first_step = 1}).value()[0].phases.size() == 2);
  REQUIRE(store->ListSamples({.step = 3}).value().total == 1);
}

TEST_CASE("Named metrics are read alone, as ranges, and those of undone steps as well", "[store]") {
  const testing::TempDir dir;
  auto store = SqliteRunStore::Open(PathIn(dir)).value();
  for (int64_t step = 1; step <= 4; ++step) {
    StepRecord record = MakeStepRecord(step, 0.25 * static_cast<double>(step));
    if (step == 3) record.metrics["rare"] = 7;
    REQUIRE(store->RecordStep(record).ok());
  }
  const auto named =
      store->ListSteps({.first_step = 2, .phases = false, .metrics = {"rare", "broken", "none"}})
          .value();
  REQUIRE(named.size() == 3);
  REQUIRE(named[0].step == 2);
  REQUIRE(named[0].phases.empty());
  REQUIRE(named[0].metrics.size() == 1);
  REQUIRE(std::isnan(named[0].metrics.at("broken")));
  REQUIRE(named[1].metrics.at("rare") == 7);
  REQUIRE(store->UndoAfter(2, 5).ok());
  REQUIRE(store->ListSteps({.metrics = {"rare"}}).value().back().metrics.empty());
  const auto undone = store->ListSteps({.undone = true, .metrics = {"rare"}}).value();
  REQUIRE(undone.at(0).metrics == std::map<std::string, double>{{"rare", 7}});
  // A step that is made again has its own numbers.
  REQUIRE(store->RecordStep({.step = 3, .metrics = {{"rare", 8}}}).ok());
  REQUIRE(store->ListSteps({.metrics = {"rare"}}).value().back().metrics.at("rare") == 8);
}

TEST_CASE("A run's row keeps its number and gets its end; a next start has the next number",
          "[store]") {
  const testing::TempDir dir;
  auto store = SqliteRunStore::Open(PathIn(dir)).value();
  const auto newest = [&] {
    return SqliteRunReader::Open(PathIn(dir)).value()->NewestRun().value();
  };
  REQUIRE(store->RecordRun({.run_id = "a"}).ok());
  REQUIRE(newest().outcome == RunOutcome::kNone);
  REQUIRE(store
              ->RecordRun({.run_id = "a",
                           .ended_at = "2026-01-02T03:04:05Z",
                           .outcome = RunOutcome::kFailed,
                           .error = "no space"})
              .ok());
  REQUIRE(newest().attempt == 1);
  REQUIRE(newest().outcome == RunOutcome::kFailed);
  REQUIRE(newest().ended_at == "2026-01-02T03:04:05Z");
  REQUIRE(newest().error == "no space");
  REQUIRE(store->RecordRun({.run_id = "b"}).ok());
  REQUIRE(newest().attempt == 2);
  REQUIRE(newest().outcome == RunOutcome::kNone);
}

TEST_CASE("Groups belong to their step and are undone with it; events stay", "[store]") {
  const testing::TempDir dir;
  auto store = SqliteRunStore::Open(PathIn(dir)).value();
  StepRecord record = MakeStepRecord(1, 0.5);
  record.groups = {{.group = 0, .samples = 2, .reward_mean = 0.5, .reward_std = 0.7},
                   {.group = 1, .samples = 2, .reward_mean = 1, .kind = GroupKind::kAllRight}};
  REQUIRE(store->RecordStep(record).ok());
  REQUIRE(store->RecordStep(record).ok());
  REQUIRE(store->RecordEvents({{.time_us = 5, .step = 1, .kind = "loss", .text = "x"}}).ok());
  const auto groups = store->ListSamples({.step = 1}).value().groups;
  REQUIRE(groups.size() == 2);
  REQUIRE(groups[0].reward_std == 0.7);
  REQUIRE(groups[0].kind == GroupKind::kMixed);
  REQUIRE(groups[1].kind == GroupKind::kAllRight);
  REQUIRE(store->UndoAfter(0, 3).ok());
  REQUIRE(store->ListSamples({.step = 1}).value().groups.empty());
  REQUIRE(store->ListSamples({.step = 1, .undone_by = 3}).value().groups.size() == 2);
  REQUIRE(store->RecordEvents({{.kind = "recovery"}, {.kind = "end"}}).ok());
  const auto events = store->ListEvents(2).value();
  REQUIRE(events.size() == 2);
  REQUIRE(events[0].kind == "recovery");
  REQUIRE(events[1].kind == "end");
  REQUIRE(store->ListEvents(9).value().at(0).time_us == 5);
}

TEST_CASE("A kind of group that no build has written is named, not taken for another", "[store]") {
  const testing::TempDir dir;
  auto store = SqliteRunStore::Open(PathIn(dir)).value();
  StepRecord record = MakeStepRecord(1, 0.5);
  record.groups = {{.group = 4, .samples = 2}};
  REQUIRE(store->RecordStep(record).ok());
  REQUIRE(SqliteDatabase::Open(PathIn(dir))
              .value()
              ->Execute("UPDATE groups SET kind = 'half_right'")
              .ok());
  const absl::Status read = store->ListSamples({.step = 1}).status();
  REQUIRE(absl::IsDataLoss(read));
  REQUIRE(read.message().find("group 4 of step 1 has the kind \"half_right\"") !=
          std::string::npos);
}

TEST_CASE("ListSteps and ListSamples page", "[store]") {
  const testing::TempDir dir;
  auto store = SqliteRunStore::Open(PathIn(dir)).value();
  for (int64_t step = 1; step <= 5; ++step)
    REQUIRE(store->RecordStep(MakeStepRecord(step, 0)).ok());
  REQUIRE(store->ListSteps({.first_step = 2, .last_step = 4}).value().size() == 3);
  REQUIRE(store->ListSteps({.first_step = 4}).value().back().step == 5);
  REQUIRE(store
              ->RecordSamples(
                  1, {MakeSampleRecord(1, 1), MakeSampleRecord(1, 2), MakeSampleRecord(1, 3)})
              .ok());
  const auto page = store->ListSamples({.step = 1, .limit = 1, .offset = 1}).value();
  REQUIRE(page.total == 3);
  REQUIRE(page.samples.size() == 1);
  REQUIRE(page.samples[0].sample_id == 2);
}

TEST_CASE("What a recovery undoes stays, with the generation that repeats it", "[store]") {
  const testing::TempDir dir;
  auto store = SqliteRunStore::Open(PathIn(dir)).value();
  const auto record = [&](int64_t step, double reward) {
    REQUIRE(store->RecordStep(MakeStepRecord(step, reward)).ok());
    REQUIRE(store->RecordSamples(step, {MakeSampleRecord(step, 1)}).ok());
    REQUIRE(store->RecordEvaluation({.step = step, .prompts = 7}).ok());
  };
  for (int64_t step = 1; step <= 4; ++step) record(step, 0.1);
  REQUIRE(store->UndoAfter(2, 5).ok());
  REQUIRE(store->ListSteps({}).value().size() == 2);
  REQUIRE(store->ListSamples({.step = 3}).value().total == 0);
  REQUIRE(store->ListEvaluations({}).value().size() == 2);

  record(3, 0.2);
  REQUIRE(store->UndoAfter(2, 6).ok());
  record(3, 0.3);
  REQUIRE(store->ListSteps({}).value().size() == 3);
  REQUIRE(store->ListSteps({}).value().back().metrics.at("reward/mean") == 0.3);
  REQUIRE(store->ListSteps({}).value().back().undone_by == 0);

  const auto undone = store->ListSteps({.undone = true}).value();
  REQUIRE(undone.size() == 3);
  REQUIRE(undone[0].step == 3);
  REQUIRE(undone[0].undone_by == 5);
  REQUIRE(undone[0].metrics.at("reward/mean") == 0.1);
  REQUIRE(undone[0].phases.size() == 2);
  REQUIRE(undone[0].phases[1].workers.size() == 1);
  REQUIRE(undone[1].step == 3);
  REQUIRE(undone[1].undone_by == 6);
  REQUIRE(undone[1].metrics.at("reward/mean") == 0.2);
  REQUIRE(undone[2].step == 4);
  const auto samples = store->ListSamples({.step = 4, .undone_by = 5}).value();
  REQUIRE(samples.total == 1);
  REQUIRE(samples.samples[0].undone_by == 5);
  REQUIRE(samples.samples[0].segments.size() == 2);
  REQUIRE(store->ListSamples({.step = 4, .undone_by = 6}).value().total == 0);
  REQUIRE(store->ListEvaluations({.undone = true}).value().size() == 3);
  // A page does not separate what was undone of one step.
  const auto page = store->ListSteps({.last_step = 3, .limit = 1, .undone = true}).value();
  REQUIRE(page.size() == 2);
}

TEST_CASE("A page of steps or samples ends with the record that exceeds its bytes", "[store]") {
  const testing::TempDir dir;
  auto store = SqliteRunStore::Open(PathIn(dir)).value();
  for (int64_t step = 1; step <= 9; ++step) {
    REQUIRE(store->RecordStep(MakeStepRecord(step, 0)).ok());
  }
  const auto newest = store->ListSteps({.max_bytes = 1}).value();
  REQUIRE(newest.size() == 1);
  REQUIRE(newest[0].step == 9);
  REQUIRE(newest[0].phases[1].workers.size() == 1);
  const auto more = store->ListSteps({.max_bytes = 1000, .workers = false}).value();
  REQUIRE(more.size() == 9);
  REQUIRE(more[8].phases[1].workers.empty());
  REQUIRE(store->ListSteps({.max_bytes = 1000}).value().size() < 9);
  std::vector<SampleRecord> samples;
  for (uint64_t id = 1; id <= 5; ++id) {
    samples.push_back(MakeSampleRecord(1, id));
    samples.back().prompt.assign(100, 'p');
  }
  REQUIRE(store->RecordSamples(1, samples).ok());
  const auto page = store->ListSamples({.step = 1, .offset = 1, .max_bytes = 150}).value();
  REQUIRE(page.total == 5);
  REQUIRE(page.samples.size() == 2);
  REQUIRE(page.samples[0].sample_id == 2);
}

TEST_CASE("Only the newest steps keep the texts of their samples, if so configured", "[store]") {
  const testing::TempDir dir;
  auto store = SqliteRunStore::Open(PathIn(dir), 2).value();
  const auto record = [&](int64_t step) {
    REQUIRE(store->RecordSamples(step, {MakeSampleRecord(step, 1)}).ok());
  };
  const auto with_texts = [&] {
    std::vector<int64_t> steps;
    for (int64_t step = 1; step <= 9; ++step) {
      const auto page = store->ListSamples({.step = step}).value();
      for (const SampleRecord& sample : page.samples) {
        REQUIRE(sample.reward == 0.5);
        REQUIRE(sample.texts_kept == !sample.prompt.empty());
        REQUIRE(sample.texts_kept == !sample.response.empty());
        if (sample.texts_kept) steps.push_back(step);
      }
    }
    return steps;
  };
  for (int64_t step = 1; step <= 2; ++step) record(step);
  REQUIRE(with_texts() == std::vector<int64_t>{1, 2});
  for (int64_t step = 3; step <= 5; ++step) record(step);
  REQUIRE(with_texts() == std::vector<int64_t>{4, 5});
  // Steps that are repeated are dropped again when their time comes.
  REQUIRE(store->UndoAfter(1, 3).ok());
  REQUIRE(store->ListSamples({.step = 5, .undone_by = 3}).value().samples[0].texts_kept);
  for (int64_t step = 2; step <= 7; ++step) record(step);
  REQUIRE(with_texts() == std::vector<int64_t>{6, 7});
  REQUIRE_FALSE(store->ListSamples({.step = 5, .undone_by = 3}).value().samples[0].texts_kept);
  // A number that was raised brings nothing back, and keeps what is there.
  store = SqliteRunStore::Open(PathIn(dir), 3).value();
  record(8);
  REQUIRE(with_texts() == std::vector<int64_t>{6, 7, 8});
}

TEST_CASE("A lowered number of steps with texts empties old ones a few at each step", "[store]") {
  const testing::TempDir dir;
  const int64_t first = 1'000'001;  // a store that begins late in a run
  const int64_t steps = 100;
  auto store = SqliteRunStore::Open(PathIn(dir)).value();
  for (int64_t step = first; step < first + steps; ++step) {
    REQUIRE(store->RecordSamples(step, {MakeSampleRecord(step, 1)}).ok());
  }
  const auto with_texts = [&] {
    int64_t count = 0;
    for (int64_t step = first; step < first + steps + 4; ++step) {
      const auto page = store->ListSamples({.step = step}).value();
      for (const SampleRecord& sample : page.samples) {
        count += sample.texts_kept ? 1 : 0;
      }
    }
    return count;
  };
  store = SqliteRunStore::Open(PathIn(dir), 2).value();
  std::vector<int64_t> counts;
  for (int64_t step = first + steps; step < first + steps + 4; ++step) {
    REQUIRE(store->RecordSamples(step, {MakeSampleRecord(step, 1)}).ok());
    counts.push_back(with_texts());
  }
  REQUIRE(counts == std::vector<int64_t>{69, 38, 7, 2});
}

TEST_CASE("A walk over what was undone meets every evaluation of a step", "[store]") {
  const testing::TempDir dir;
  auto store = SqliteRunStore::Open(PathIn(dir)).value();
  // The page of kRecordsOfPage ends inside step 1.
  const int64_t generations = kRecordsOfPage + 3;
  for (int64_t generation = 1; generation <= generations; ++generation) {
    REQUIRE(store->RecordEvaluation({.step = 1}).ok());
    if (generation == 1) REQUIRE(store->RecordEvaluation({.step = 2}).ok());
    REQUIRE(store->UndoAfter(0, generation).ok());
  }
  std::vector<int64_t> steps;
  int64_t newest = 0;
  REQUIRE(ForEachEvaluation(*store, {.undone = true}, [&](const EvaluationRecord& evaluation) {
            steps.push_back(evaluation.step);
            newest = std::max(newest, evaluation.undone_by);
          }).ok());
  REQUIRE(std::ssize(steps) == generations + 1);
  REQUIRE(steps.back() == 2);
  REQUIRE(newest == generations);
}

TEST_CASE("A database of a build without segments is brought forward, its samples kept",
          "[store]") {
  const testing::TempDir dir;
  {
    auto store = SqliteRunStore::Open(PathIn(dir)).value();
    REQUIRE(store->RecordSamples(1, {MakeSampleRecord(1, 5)}).ok());
  }
  testing::OlderStore(PathIn(dir), 3);
  auto store = SqliteRunStore::Open(PathIn(dir)).value();
  const auto old = store->ListSamples({.step = 1}).value();
  REQUIRE(old.samples.at(0).sample_id == 5);
  REQUIRE(old.samples[0].segments.empty());
  REQUIRE(store->RecordSamples(2, {MakeSampleRecord(2, 6)}).ok());
  REQUIRE(store->ListSamples({.step = 2}).value().samples.at(0).segments.size() == 2);
}

TEST_CASE("Segments that no run wrote read as none", "[store]") {
  const testing::TempDir dir;
  {
    auto store = SqliteRunStore::Open(PathIn(dir)).value();
    REQUIRE(store->RecordSamples(1, {MakeSampleRecord(1, 5)}).ok());
  }
  for (const char* text :
       {"[[0, 9223372036854775808, true, 3]]", "[[18446744073709551615, 1, true, 3]]",
        "[[0, 1, true, 1.5]]", "[[0, 1, 1, 3]]", "[[0, 1, true]]", "{}", "["}) {
    INFO(text);
    REQUIRE(SqliteDatabase::Open(PathIn(dir))
                .value()
                ->Execute(std::string("UPDATE samples SET segments = '") + text + "'")
                .ok());
    auto store = SqliteRunStore::Open(PathIn(dir)).value();
    REQUIRE(store->ListSamples({.step = 1}).value().samples.at(0).segments.empty());
  }
}

TEST_CASE("A database of a newer build is refused and left alone", "[store]") {
  const testing::TempDir dir;
  SqliteRunStore::Open(PathIn(dir)).value();
  {
    auto db = SqliteDatabase::Open(PathIn(dir)).value();
    REQUIRE(db->Execute("PRAGMA user_version = 999").ok());
  }
  const auto status = SqliteRunStore::Open(PathIn(dir)).status();
  REQUIRE(status.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(std::string(status.message()).find("999") != std::string::npos);
}

TEST_CASE("A corrupt database and a missing folder are named", "[store]") {
  const testing::TempDir dir;
  std::ofstream(PathIn(dir)) << std::string(4096, 'x');
  const auto corrupt = SqliteRunStore::Open(PathIn(dir)).status();
  REQUIRE(corrupt.code() == absl::StatusCode::kDataLoss);
  REQUIRE(std::string(corrupt.message()).find("run.db") != std::string::npos);
  REQUIRE(std::string(corrupt.message()).find("move it away") != std::string::npos);
  REQUIRE(SqliteRunStore::Open("/nonexistent/run.db").status().code() ==
          absl::StatusCode::kPermissionDenied);
}

TEST_CASE("A store that begins in memory goes on in a file, without rows of before", "[store]") {
  const testing::TempDir dir;
  auto store = SqliteRunStore::Open(":memory:").value();
  REQUIRE(store->RecordStep(MakeStepRecord(1, 0.5)).ok());
  REQUIRE(store->ContinueIn(PathIn(dir)).ok());
  REQUIRE(store->ListSteps({})->empty());
  REQUIRE(store->RecordStep(MakeStepRecord(2, 0.5)).ok());
  REQUIRE(SqliteRunStore::Open(PathIn(dir)).value()->ListSteps({})->size() == 1);
}

TEST_CASE("A store that was settled is one file, with the rows of a process that was killed",
          "[store]") {
  const testing::TempDir dir;
  const std::string killed = (dir.path() / "killed.db").string();
  {
    auto store = SqliteRunStore::Open(PathIn(dir)).value();
    REQUIRE(store->RecordStep(MakeStepRecord(1, 0.5)).ok());
    // What a kill leaves: the rows are in SQLite's log alone.
    std::filesystem::copy_file(PathIn(dir), killed);
    std::filesystem::copy_file(PathIn(dir) + "-wal", killed + "-wal");
  }
  REQUIRE(SettleStore(killed).ok());
  REQUIRE_FALSE(std::filesystem::exists(killed + "-wal"));
  REQUIRE(SqliteRunStore::Open(killed).value()->ListSteps({})->size() == 1);
  // Nothing is made where there is nothing, and no garbage is touched.
  REQUIRE(SettleStore((dir.path() / "none.db").string()).ok());
  REQUIRE_FALSE(std::filesystem::exists(dir.path() / "none.db"));
  std::ofstream(dir.path() / "garbage.db") << std::string(4096, 'x');
  REQUIRE(SettleStore((dir.path() / "garbage.db").string()).ok());
  REQUIRE(std::filesystem::file_size(dir.path() / "garbage.db") == 4096);
}

TEST_CASE("A store whose log another program reads is not settled", "[store]") {
  const testing::TempDir dir;
  auto store = SqliteRunStore::Open(PathIn(dir)).value();
  REQUIRE(store->RecordStep(MakeStepRecord(1, 0.5)).ok());
  auto reader = SqliteDatabase::Open(PathIn(dir)).value();
  REQUIRE(reader->Execute("BEGIN").ok());
  REQUIRE(reader->Execute("SELECT * FROM steps").ok());
  REQUIRE(store->RecordStep(MakeStepRecord(2, 0.5)).ok());
  const absl::Status held = SettleStore(PathIn(dir));
  REQUIRE(absl::IsFailedPrecondition(held));
  REQUIRE(std::string(held.message()).find("run.db-wal") != std::string::npos);
  REQUIRE(reader->Execute("COMMIT").ok());
  REQUIRE(SettleStore(PathIn(dir)).ok());
}
