#include "controller/store/sqlite/run_reader.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include <catch2/catch.hpp>

#include "common/formats/files.h"
#include "controller/store/sqlite/schema.h"
#include "controller/store/sqlite/sqlite_run_store.h"
#include "tests/controller/store/sqlite/older_store.h"
#include "tests/support/large_store.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using testing::Has;

// A folder with a store of two steps, closed.
struct ReaderFolder {
  ReaderFolder() {
    auto store = SqliteRunStore::Open(path).value();
    Record(*store, 1);
    Record(*store, 2);
  }
  static void Record(SqliteRunStore& store, int64_t step) {
    REQUIRE(store.RecordRun({.run_id = "project/run", .memory_plan = "{}"}).ok());
    REQUIRE(
        store.RecordStep({.step = step, .metrics = {{"reward", 0.5}}, .phases = {{"train"}}}).ok());
    REQUIRE(store.RecordSamples(step, {{.sample_id = 3, .step = step, .prompt = "p"}}).ok());
    REQUIRE(store.RecordEvaluation({.step = step}).ok());
  }
  // The folder's files, with their contents.
  std::map<std::string, std::string> Files() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(dir.path())) {
      files[entry.path().filename()] = ReadWholeFile(entry.path()).value();
    }
    return files;
  }
  void Execute(const std::string& sql) const {
    REQUIRE(SqliteDatabase::Open(path).value()->Execute(sql).ok());
  }
  testing::TempDir dir;
  const std::string path = dir.path() / "run.db";
};

}  // namespace

TEST_CASE("A reader changes nothing in the folder, whatever schema it finds", "[store]") {
  for (int64_t version = 1; version <= StoreSchemaVersion(); ++version) {
    INFO("schema version " << version);
    const ReaderFolder f;
    if (version < StoreSchemaVersion()) testing::OlderStore(f.path, version);
    const auto before = f.Files();
    {
      auto reader = SqliteRunReader::Open(f.path).value();
      REQUIRE(reader->NewestRun().value().run_id == "project/run");
      REQUIRE(reader->NewestRun().value().memory_plan == (version < 3 ? "" : "{}"));
      const auto steps = reader->ListSteps({}).value();
      REQUIRE(steps.size() == 2);
      REQUIRE(steps[1].phases.at(0).phase == "train");
      REQUIRE(steps[1].metrics.at("reward") == 0.5);
      REQUIRE(reader->ListSteps({.undone = true}).value().empty());
      const auto page = reader->ListSamples({.step = 2}).value();
      REQUIRE(page.total == 1);
      REQUIRE(page.samples[0].prompt == "p");
      REQUIRE(page.samples[0].texts_kept);
      REQUIRE(page.samples[0].segments.empty());
      REQUIRE(reader->ListSamples({.step = 2, .undone_by = 1}).value().total == 0);
      REQUIRE(reader->ListEvaluations({}).value().size() == 2);
      REQUIRE(f.Files() == before);
    }
    REQUIRE(f.Files() == before);
  }
}

// The run.db that a build of schema version 4 left (make_schema_4.py), as a copy.
struct Schema4File {
  Schema4File() { fs::copy_file("tests/controller/store/sqlite/data/schema_4.db", path); }

  testing::TempDir dir;
  const std::string path = dir.path() / "run.db";
};

TEST_CASE("A file of schema version 4 is read as it is, with what it lacks left out", "[store]") {
  const Schema4File f;
  const std::string before = ReadWholeFile(f.path).value();
  const auto reader = SqliteRunReader::Open(f.path).value();
  const RunInfo info = reader->NewestRun().value();
  REQUIRE(info.run_id == "tandem/old/20260102-110000");
  REQUIRE(info.first_step == 2);
  REQUIRE(info.outcome == RunOutcome::kUnknown);
  REQUIRE(info.ended_at.empty());
  REQUIRE(info.attempt == 0);
  const auto steps = reader->ListSteps({}).value();
  REQUIRE(steps.size() == 3);
  REQUIRE(steps[2].finished_at == "2026-01-02T10:03:00Z");
  REQUIRE(steps[2].metrics.at("critic/rewards/mean") == 0.75);
  const auto named = reader->ListSteps({.metrics = {"actor/entropy", "no/such"}}).value();
  REQUIRE(named.size() == 3);
  REQUIRE(named[0].metrics == std::map<std::string, double>{{"actor/entropy", 1.5}});
  const auto page = reader->ListSamples({.step = 3}).value();
  REQUIRE(page.samples.size() == 4);
  REQUIRE(page.groups.empty());
  REQUIRE(reader->ListEvents(5).value().empty());
  REQUIRE(ReadWholeFile(f.path).value() == before);
}

TEST_CASE("A store brings a file of schema version 4 to the newest with all it has", "[store]") {
  const Schema4File f;
  {
    auto store = SqliteRunStore::Open(f.path).value();
    REQUIRE(store->RecordRun({.run_id = "now"}).ok());
    REQUIRE(store->RecordStep({.step = 4, .metrics = {{"actor/entropy", 0.5}}}).ok());
  }
  REQUIRE(StoreSchemaVersion() == 6);
  const auto reader = SqliteRunReader::Open(f.path).value();
  REQUIRE(reader->NewestRun().value().attempt == 3);
  REQUIRE(reader->NewestRun().value().outcome == RunOutcome::kNone);
  const auto steps = reader->ListSteps({.metrics = {"actor/entropy", "actor/grad_norm"}}).value();
  REQUIRE(steps.size() == 4);
  REQUIRE(steps[0].finished_at == "2026-01-02T10:01:00.000000Z");
  REQUIRE(steps[0].metrics.at("actor/entropy") == 1.5);
  REQUIRE(std::isnan(steps[0].metrics.at("actor/grad_norm")));
  REQUIRE(steps[3].metrics == std::map<std::string, double>{{"actor/entropy", 0.5}});
  REQUIRE(reader->ListSamples({.step = 3}).value().samples.size() == 4);
}

// The same of schema version 5 (make_schema_5.py).
struct Schema5File {
  Schema5File() { fs::copy_file("tests/controller/store/sqlite/data/schema_5.db", path); }

  testing::TempDir dir;
  const std::string path = dir.path() / "run.db";
};

TEST_CASE("A file of schema version 5 is read as it is, with what it lacks left out", "[store]") {
  const Schema5File f;
  const std::string before = ReadWholeFile(f.path).value();
  const auto reader = SqliteRunReader::Open(f.path).value();
  REQUIRE(reader->NewestRun().value().attempt == 2);
  const auto steps = reader->ListSteps({.details = true}).value();
  REQUIRE(steps.size() == 3);
  REQUIRE(steps[2].metrics.at("critic/rewards/mean") == 0.75);
  REQUIRE(steps[2].histograms.empty());
  const auto undone = reader->ListSteps({.undone = true, .details = true}).value();
  REQUIRE(undone.at(0).undone_by == 2);
  REQUIRE(undone[0].histograms.empty());
  REQUIRE(reader->ListSamples({.step = 3, .evicted = true}).value().total == 0);
  REQUIRE(reader->ListSamples({.prompt_id = 1}).value().total == 0);
  REQUIRE(reader->ListSamples({.step = 3, .evaluation = true}).value().total == 0);
  const auto page = reader->ListSamples({.step = 3}).value();
  REQUIRE(page.samples.size() == 4);
  REQUIRE(page.samples[1].prompt == "What is 1 + 2?");
  REQUIRE(page.samples[1].texts_kept);
  REQUIRE(page.samples[1].prompt_id == 0);
  REQUIRE_FALSE(page.samples[1].min_log_prob);
  REQUIRE(page.groups.size() == 2);
  REQUIRE(reader->ListEvents(9).value().size() == 3);
  REQUIRE(ReadWholeFile(f.path).value() == before);
}

TEST_CASE("A store brings a file of schema version 5 to the newest with all it has", "[store]") {
  const Schema5File f;
  {
    auto store = SqliteRunStore::Open(f.path).value();
    Histogram rewards{.low = 0, .high = 1};
    rewards.Add(1);
    REQUIRE(store->RecordStep({.step = 4, .histograms = {{kRewardHistogram, rewards}}}).ok());
    REQUIRE(store->RecordSamples(4, {{.sample_id = 9, .prompt = "What is 1 + 2?"}}).ok());
  }
  const auto reader = SqliteRunReader::Open(f.path).value();
  const auto steps = reader->ListSteps({.details = true}).value();
  REQUIRE(steps.size() == 4);
  REQUIRE(steps[2].metrics.at("critic/rewards/mean") == 0.75);
  REQUIRE(steps[2].histograms.empty());
  REQUIRE(steps[3].histograms.at(kRewardHistogram).counts[31] == 1);
  const auto before = reader->ListSamples({.step = 3}).value().samples;
  REQUIRE(before.size() == 4);
  REQUIRE(before[0].prompt == "What is 1 + 2?");
  REQUIRE(before[0].prompt_id == 0);
  const auto after = reader->ListSamples({.step = 4}).value().samples;
  REQUIRE(after.at(0).prompt == "What is 1 + 2?");
  REQUIRE(after[0].prompt_id == 1);
  REQUIRE(reader->ListSamples({.step = 4, .undone_by = 2}).value().samples.at(0).response == "4");
  REQUIRE(reader->ListEvents(9).value().size() == 3);
}

TEST_CASE("A file of version 5 without its second half gets it from the store", "[store]") {
  const Schema5File f;
  {
    // As a build between two releases left it.
    auto db = SqliteDatabase::Open(f.path).value();
    for (const char* table :
         {"metric_values", "metric_names", "events", "groups", "undone_groups"}) {
      REQUIRE(db->Execute(std::string("DROP TABLE ") + table).ok());
    }
    for (const char* column : {"ended_at", "outcome", "error", "attempt"}) {
      REQUIRE(db->Execute(std::string("ALTER TABLE runs DROP COLUMN ") + column).ok());
    }
  }
  REQUIRE(SqliteRunReader::Open(f.path).value()->ListEvents(5).value().empty());
  auto store = SqliteRunStore::Open(f.path).value();
  REQUIRE(store->RecordEvents({{.kind = "loss", .text = "trainer 0"}}).ok());
  REQUIRE(store->ListEvents(5).value().at(0).text == "trainer 0");
  REQUIRE(store->ListSteps({.metrics = {"actor/entropy"}}).value().size() == 3);
}

TEST_CASE("A file of schema version 7 is refused by name and left as it is", "[store]") {
  const ReaderFolder f;
  f.Execute("PRAGMA user_version = 7");
  f.Execute("PRAGMA journal_mode=DELETE");
  for (const absl::Status& status :
       {SqliteRunReader::Open(f.path).status(), SqliteRunStore::Open(f.path).status()}) {
    REQUIRE(absl::IsFailedPrecondition(status));
    REQUIRE(Has(std::string(status.message()), "schema version 7, newer than this build's 6"));
  }
}

TEST_CASE("A reader sees what a writer records meanwhile, and does not hold it up", "[store]") {
  const ReaderFolder f;
  auto store = SqliteRunStore::Open(f.path).value();
  ReaderFolder::Record(*store, 3);
  const auto reader = SqliteRunReader::Open(f.path).value();
  REQUIRE(reader->ListSteps({}).value().size() == 3);
  ReaderFolder::Record(*store, 4);
  REQUIRE(reader->ListSteps({}).value().size() == 4);
  // Also within a transaction of the writer: what is not committed is not seen.
  auto writer = SqliteDatabase::Open(f.path).value();
  auto transaction = SqliteTransaction::Begin(writer.get()).value();
  REQUIRE(writer->Execute("DELETE FROM steps").ok());
  REQUIRE(reader->ListSteps({}).value().size() == 4);
  REQUIRE(SqliteRunReader::Open(f.path).value()->ListSteps({}).value().size() == 4);
}

TEST_CASE("A reader finds the rows of a writer that was killed in SQLite's log", "[store]") {
  const ReaderFolder f;
  const testing::TempDir killed;
  {
    auto store = SqliteRunStore::Open(f.path).value();
    ReaderFolder::Record(*store, 3);
    for (const char* end : {"", "-wal", "-shm"}) {
      fs::copy_file(f.path + end, killed.path() / (std::string("run.db") + end));
    }
  }
  const std::string path = killed.path() / "run.db";
  const std::string database = ReadWholeFile(path).value();
  const std::string log = ReadWholeFile(path + "-wal").value();
  REQUIRE(SqliteRunReader::Open(path).value()->ListSteps({}).value().size() == 3);
  REQUIRE(ReadWholeFile(path).value() == database);
  REQUIRE(ReadWholeFile(path + "-wal").value() == log);
}

TEST_CASE("Rows can be asked for, but not written, through a connection that reads", "[store]") {
  const ReaderFolder f;
  const auto db = SqliteDatabase::OpenReadOnly(f.path).value();
  REQUIRE(absl::IsPermissionDenied(db->Execute("DELETE FROM steps")));
  REQUIRE(SqliteRunReader::Open(f.path).value()->ListSteps({}).value().size() == 2);
}

TEST_CASE("A path with characters that mean something in a URI is opened", "[store]") {
  const testing::TempDir dir;
  const fs::path folder = dir.path() / "100% done? #1";
  fs::create_directories(folder);
  ReaderFolder::Record(*SqliteRunStore::Open(folder / "run.db").value(), 1);
  REQUIRE(SqliteRunReader::Open(folder / "run.db").value()->ListSteps({}).value().size() == 1);
}

TEST_CASE("What is not a run is refused with a remedy, and left alone", "[store]") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "run.db";
  REQUIRE(absl::IsNotFound(SqliteRunReader::Open(path).status()));
  REQUIRE_FALSE(fs::exists(path));
  for (const std::string& garbage :
       {std::string(4096, 'x'), std::string("SQLite format 3\0", 16)}) {
    std::ofstream(path, std::ios::trunc) << garbage;
    const absl::Status status = SqliteRunReader::Open(path).status();
    INFO(status);
    REQUIRE(absl::IsDataLoss(status));
    REQUIRE(Has(std::string(status.message()), path));
    REQUIRE(Has(std::string(status.message()), "bring back a copy of it"));
    REQUIRE(ReadWholeFile(path).value() == garbage);
  }
  // A folder that may not be looked into is not a missing run.
  REQUIRE(Has(std::string(SqliteRunReader::Open(path + "/run.db").status().message()),
              "cannot be opened: Not a directory"));
  // An empty file is an empty database.
  std::ofstream(path, std::ios::trunc) << "";
  const auto empty = SqliteRunReader::Open(path).value();
  REQUIRE(absl::IsNotFound(empty->NewestRun().status()));
  REQUIRE(empty->ListSteps({}).value().empty());
  REQUIRE(empty->ListSamples({.step = 1}).value().total == 0);
}

TEST_CASE("A database of a newer build is not read", "[store]") {
  const ReaderFolder f;
  f.Execute("PRAGMA user_version = 999");
  const absl::Status status = SqliteRunReader::Open(f.path).status();
  REQUIRE(absl::IsFailedPrecondition(status));
  REQUIRE(Has(std::string(status.message()), "use the build that wrote it"));
}

// Bytes that this process has read from files and sockets.
int64_t BytesRead() {
  std::ifstream io("/proc/self/io");
  std::string name;
  int64_t bytes = 0;
  REQUIRE(io >> name >> bytes);
  REQUIRE(name == "rchar:");
  return bytes;
}

TEST_CASE("A page of a long run's first steps is read without going through the later ones",
          "[store]") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "run.db";
  REQUIRE(SqliteRunStore::Open(path).ok());
  REQUIRE(testing::FillStore(path, {.steps = 5000, .samples = 1, .all_sampled = false}).ok());
  const auto reader = SqliteRunReader::Open(path).value();
  const int64_t before = BytesRead();
  const auto page = reader->ListSteps({.first_step = 1, .last_step = 10, .workers = false});
  REQUIRE(page.value().size() == 10);
  REQUIRE(BytesRead() - before < int64_t{1} << 20);
  REQUIRE(fs::file_size(path) > 8 << 20);
  REQUIRE(reader->ListSteps({.first_step = 4999, .workers = false}).value().size() == 2);
}

TEST_CASE("Reading ends after its time, and says what to do", "[store]") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "run.db";
  REQUIRE(SqliteRunStore::Open(path).ok());
  REQUIRE(testing::FillStore(path, {.steps = 2000, .samples = 1, .all_sampled = false}).ok());
  const auto reader = SqliteRunReader::Open(path).value();
  reader->LimitTime(absl::Hours(1));
  REQUIRE(reader->ReadMetrics({kRewardMean}, 0, 0)->at(kRewardMean).size() == 2000);
  reader->LimitTime(absl::ZeroDuration());
  const absl::Status late = reader->ReadMetrics({kRewardMean}, 0, 0).status();
  REQUIRE(absl::IsDeadlineExceeded(late));
  REQUIRE(testing::Says(late, "ask for fewer steps"));
  REQUIRE(reader->NewestRun().status().code() != absl::StatusCode::kDeadlineExceeded);
}

}  // namespace tandem
