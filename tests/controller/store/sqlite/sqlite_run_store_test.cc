#include "controller/store/sqlite/sqlite_run_store.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

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
  const auto steps = store->ListSteps(1, 0, 0).value();
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
  const auto page = store->ListSamples(1, 10, 0).value();
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
  REQUIRE(store->ListEvaluations().value()[0].metrics.at("m") == 0.5);
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
  REQUIRE(store->ListSteps(1, 0, 0).value().size() == 1);
  REQUIRE(store->ListSteps(1, 0, 0).value()[0].metrics.at("reward/mean") == 0.9);
  REQUIRE(store->ListSteps(1, 0, 0).value()[0].phases.size() == 2);
  REQUIRE(store->ListSamples(3, 10, 0).value().total == 1);
}

TEST_CASE("ListSteps and ListSamples page", "[store]") {
  const testing::TempDir dir;
  auto store = SqliteRunStore::Open(PathIn(dir)).value();
  for (int64_t step = 1; step <= 5; ++step)
    REQUIRE(store->RecordStep(MakeStepRecord(step, 0)).ok());
  REQUIRE(store->ListSteps(2, 4, 0).value().size() == 3);
  REQUIRE(store->ListSteps(4, 0, 0).value().back().step == 5);
  REQUIRE(store
              ->RecordSamples(
                  1, {MakeSampleRecord(1, 1), MakeSampleRecord(1, 2), MakeSampleRecord(1, 3)})
              .ok());
  const auto page = store->ListSamples(1, 1, 1).value();
  REQUIRE(page.total == 3);
  REQUIRE(page.samples.size() == 1);
  REQUIRE(page.samples[0].sample_id == 2);
}

TEST_CASE("TruncateAfter forgets what a resumed run will do again", "[store]") {
  const testing::TempDir dir;
  auto store = SqliteRunStore::Open(PathIn(dir)).value();
  for (int64_t step = 1; step <= 4; ++step) {
    REQUIRE(store->RecordStep(MakeStepRecord(step, 0)).ok());
    REQUIRE(store->RecordSamples(step, {MakeSampleRecord(step, 1)}).ok());
    REQUIRE(store->RecordEvaluation({.step = step}).ok());
  }
  REQUIRE(store->TruncateAfter(2).ok());
  REQUIRE(store->ListSteps(1, 0, 0).value().size() == 2);
  REQUIRE(store->ListSamples(3, 10, 0).value().total == 0);
  REQUIRE(store->ListEvaluations().value().size() == 2);
}

TEST_CASE("A database of a build without segments is brought forward, its samples kept",
          "[store]") {
  const testing::TempDir dir;
  {
    auto store = SqliteRunStore::Open(PathIn(dir)).value();
    REQUIRE(store->RecordSamples(1, {MakeSampleRecord(1, 5)}).ok());
  }
  {
    auto db = SqliteDatabase::Open(PathIn(dir)).value();
    REQUIRE(db->Execute("ALTER TABLE samples DROP COLUMN segments").ok());
    REQUIRE(db->Execute("PRAGMA user_version = 3").ok());
  }
  auto store = SqliteRunStore::Open(PathIn(dir)).value();
  const auto old = store->ListSamples(1, 10, 0).value();
  REQUIRE(old.samples.at(0).sample_id == 5);
  REQUIRE(old.samples[0].segments.empty());
  REQUIRE(store->RecordSamples(2, {MakeSampleRecord(2, 6)}).ok());
  REQUIRE(store->ListSamples(2, 10, 0).value().samples.at(0).segments.size() == 2);
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
  REQUIRE(SqliteRunStore::Open("/nonexistent/run.db").status().code() ==
          absl::StatusCode::kPermissionDenied);
}

TEST_CASE("A store that begins in memory goes on in a file, without rows of before", "[store]") {
  const testing::TempDir dir;
  auto store = SqliteRunStore::Open(":memory:").value();
  REQUIRE(store->RecordStep(MakeStepRecord(1, 0.5)).ok());
  REQUIRE(store->ContinueIn(PathIn(dir)).ok());
  REQUIRE(store->ListSteps(0, 0, 0)->empty());
  REQUIRE(store->RecordStep(MakeStepRecord(2, 0.5)).ok());
  REQUIRE(SqliteRunStore::Open(PathIn(dir)).value()->ListSteps(0, 0, 0)->size() == 1);
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
  SettleStore(killed);
  REQUIRE_FALSE(std::filesystem::exists(killed + "-wal"));
  REQUIRE(SqliteRunStore::Open(killed).value()->ListSteps(0, 0, 0)->size() == 1);
  // Nothing is made where there is nothing, and no garbage is touched.
  SettleStore((dir.path() / "none.db").string());
  REQUIRE_FALSE(std::filesystem::exists(dir.path() / "none.db"));
  std::ofstream(dir.path() / "garbage.db") << std::string(4096, 'x');
  SettleStore((dir.path() / "garbage.db").string());
  REQUIRE(std::filesystem::file_size(dir.path() / "garbage.db") == 4096);
}
