#include "controller/store/earlier_run.h"

#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "common/formats/files.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

void WriteRunFile(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

// A run directory after a run of two checkpoints.
struct EarlierRunFolder {
  EarlierRunFolder() {
    WriteRunFile(run_dir / "run.db", "records");
    WriteRunFile(run_dir / "run.db-wal", "newest records");
    WriteRunFile(run_dir / "metrics.jsonl", "metrics");
    WriteRunFile(run_dir / "report.html", "report");
    WriteRunFile(run_dir / "samples" / "step_000002.samples", "tokens");
    WriteRunFile(run_dir / "logs" / "controller.log", "log");
    for (const char* name : {"step_1", "step_2"}) {
      WriteRunFile(run_dir / "checkpoints" / name / "controller_state.json", "{}");
    }
    WriteRunFile(run_dir / "checkpoints" / "latest", "step_2\n");
    WriteRunFile(run_dir / "checkpoints" / "finished", "2\n");
    WriteRunFile(run_dir / "checkpoints" / "notes.txt", "the user's");
  }
  EarlierRun Look(SetAside what, int64_t step = -1) {
    return EarlierRun(run_dir.string(), checkpoints, what, step);
  }

  testing::TempDir dir;
  fs::path run_dir = dir.path() / "run";
  CheckpointIndex checkpoints = CheckpointIndex::OpenReadOnly((run_dir / "checkpoints").string());
};

}  // namespace

TEST_CASE("A run that is not gone on with moves into one folder, with its records", "[earlier]") {
  EarlierRunFolder f;
  EarlierRun earlier = f.Look(SetAside::kWholeRun);
  const fs::path folder = f.run_dir / "checkpoints.previous";
  REQUIRE(earlier.Folder() == folder.string());
  REQUIRE_FALSE(fs::exists(folder));  // it only looked
  REQUIRE(*earlier.Move() == folder.string());
  for (const char* name :
       {"step_1", "step_2", "latest", "finished", "samples/step_000002.samples"}) {
    INFO(name);
    REQUIRE(fs::exists(folder / name));
  }
  REQUIRE(*ReadWholeFile(folder / "run.db") == "records");
  REQUIRE(*ReadWholeFile(folder / "run.db-wal") == "newest records");
  REQUIRE(*ReadWholeFile(folder / "metrics.jsonl") == "metrics");
  REQUIRE(*ReadWholeFile(folder / "report.html") == "report");
  for (const char* name : {"run.db", "run.db-wal", "metrics.jsonl", "report.html", "samples"}) {
    INFO(name);
    REQUIRE_FALSE(fs::exists(f.run_dir / name));
  }
  REQUIRE(fs::exists(f.run_dir / "logs" / "controller.log"));
  REQUIRE(fs::exists(f.run_dir / "checkpoints" / "notes.txt"));
  REQUIRE(f.Look(SetAside::kWholeRun).Folder().empty());
}

TEST_CASE("A second run that moves replaces nothing of the first", "[earlier]") {
  EarlierRunFolder f;
  REQUIRE(f.Look(SetAside::kWholeRun).Move().ok());
  WriteRunFile(f.run_dir / "run.db", "records of the second");
  REQUIRE(*f.Look(SetAside::kWholeRun).Move() == (f.run_dir / "checkpoints.previous-2").string());
  REQUIRE(*ReadWholeFile(f.run_dir / "checkpoints.previous" / "run.db") == "records");
  REQUIRE(*ReadWholeFile(f.run_dir / "checkpoints.previous-2" / "run.db") ==
          "records of the second");
}

TEST_CASE("A run that goes back moves the later checkpoints alone", "[earlier]") {
  EarlierRunFolder f;
  REQUIRE(f.Look(SetAside::kLaterCheckpoints, 2).Folder().empty());
  REQUIRE(f.Look(SetAside::kLaterCheckpoints, 2).Move()->empty());
  const fs::path folder = f.run_dir / "checkpoints.previous";
  REQUIRE(*f.Look(SetAside::kLaterCheckpoints, 1).Move() == folder.string());
  REQUIRE(fs::exists(folder / "step_2"));
  REQUIRE(fs::exists(folder / "finished"));
  REQUIRE(fs::exists(f.run_dir / "checkpoints" / "step_1"));
  REQUIRE(fs::exists(f.run_dir / "run.db"));
}

TEST_CASE("A start that goes on, or finds only empty files, moves nothing", "[earlier]") {
  EarlierRunFolder f;
  REQUIRE(f.Look(SetAside::kNothing).Folder().empty());
  REQUIRE(f.Look(SetAside::kNothing).Move()->empty());
  REQUIRE(f.Look(SetAside::kWholeRun).Move().ok());
  fs::create_directories(f.run_dir / "samples");
  std::ofstream(f.run_dir / "metrics.jsonl") << "";
  REQUIRE(f.Look(SetAside::kWholeRun).Move()->empty());
  REQUIRE_FALSE(fs::exists(f.run_dir / "checkpoints.previous-2"));
}

TEST_CASE("A move that fails in the middle leaves the run as finished as it was", "[earlier]") {
  EarlierRunFolder f;
  // A file stands where the folder would have to be made.
  fs::create_directories(f.dir.path() / "elsewhere");
  CheckpointIndex checkpoints =
      CheckpointIndex::OpenReadOnly((f.dir.path() / "none" / "checkpoints").string());
  WriteRunFile(f.dir.path() / "none", "a file");
  EarlierRun earlier(f.run_dir.string(), checkpoints, SetAside::kWholeRun);
  REQUIRE_FALSE(earlier.Move().ok());
  REQUIRE(fs::exists(f.run_dir / "run.db"));
  REQUIRE(f.checkpoints.FinishedStep() == 2);
}

}  // namespace tandem
