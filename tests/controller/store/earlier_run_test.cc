#include "controller/store/earlier_run.h"

#include <cerrno>
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "common/base/disk_refusal.h"
#include "common/formats/files.h"
#include "tests/fakes/failing_renames.h"
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

  // All that the run has made, and none of it in the run directory.
  void RequireMovedTo(const fs::path& folder) const {
    for (const char* name :
         {"step_1", "step_2", "latest", "finished", "report.html", "samples/step_000002.samples"}) {
      INFO(name);
      REQUIRE(fs::exists(folder / name));
      REQUIRE_FALSE(fs::exists(run_dir / name));
      REQUIRE_FALSE(fs::exists(run_dir / "checkpoints" / name));
    }
    REQUIRE(*ReadWholeFile(folder / "run.db") == "records");
    REQUIRE(*ReadWholeFile(folder / "run.db-wal") == "newest records");
    REQUIRE(*ReadWholeFile(folder / "metrics.jsonl") == "metrics");
    for (const char* name : {"run.db", "run.db-wal", "metrics.jsonl"}) {
      INFO(name);
      REQUIRE_FALSE(fs::exists(run_dir / name));
    }
    REQUIRE(fs::exists(run_dir / "checkpoints" / "notes.txt"));
  }

  testing::TempDir dir;
  fs::path run_dir = dir.path() / "run";
  testing::FailingRenames renames;
  CheckpointIndex checkpoints =
      *CheckpointIndex::Open((run_dir / "checkpoints").string(), 0, renames);
};

}  // namespace

TEST_CASE("A run that is not gone on with moves into one folder, with its records", "[earlier]") {
  EarlierRunFolder f;
  EarlierRun earlier = f.Look(SetAside::kWholeRun);
  const fs::path folder = f.run_dir / "checkpoints.previous";
  REQUIRE(earlier.Folder() == folder.string());
  REQUIRE_FALSE(fs::exists(folder));  // it only looked
  REQUIRE(*earlier.Move() == folder.string());
  f.RequireMovedTo(folder);
  REQUIRE(fs::exists(f.run_dir / "logs" / "controller.log"));
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

TEST_CASE("A move that fails at any rename ends in one folder, `finished` last", "[earlier]") {
  int moves = 0;
  for (int failing = 1;; ++failing) {
    INFO("rename " << failing << " fails");
    EarlierRunFolder f;
    f.renames.fails = {failing};
    f.renames.error = ENOSPC;
    const std::string told = f.Look(SetAside::kWholeRun).Folder();
    const absl::StatusOr<std::string> moved = f.Look(SetAside::kWholeRun).Move();
    if (moved.ok()) {
      moves = failing - 1;
      break;
    }
    REQUIRE(IsDiskRefused(moved.status()));
    REQUIRE(f.checkpoints.FinishedStep() == 2);
    REQUIRE(f.Look(SetAside::kWholeRun).WasInterrupted());
    // The next start makes the folder of samples before it moves anything.
    fs::create_directories(f.run_dir / "samples");
    REQUIRE(f.Look(SetAside::kWholeRun).Folder() == told);
    REQUIRE(f.Look(SetAside::kWholeRun).Move().value() == told);
    f.RequireMovedTo(told);
    REQUIRE_FALSE(f.Look(SetAside::kWholeRun).WasInterrupted());
    REQUIRE_FALSE(fs::exists(f.run_dir / "checkpoints.previous-2"));
    REQUIRE(f.Look(SetAside::kWholeRun).Folder().empty());
  }
  REQUIRE(moves == 9);  // five records, two checkpoints, `latest`, `finished`
}

TEST_CASE("A start that goes on with what an interrupted move has left forgets the move",
          "[earlier]") {
  EarlierRunFolder f;
  f.renames.fails = {2};
  REQUIRE_FALSE(f.Look(SetAside::kWholeRun).Move().ok());
  REQUIRE(f.Look(SetAside::kNothing).Move()->empty());
  // Records that the run makes from now on are not part of that move.
  WriteRunFile(f.run_dir / "run.db-wal", "later records");
  REQUIRE(*f.Look(SetAside::kWholeRun).Move() == (f.run_dir / "checkpoints.previous-2").string());
  REQUIRE(*ReadWholeFile(f.run_dir / "checkpoints.previous" / "run.db-wal") == "newest records");
}

TEST_CASE("A folder of an interrupted move that is gone is chosen anew", "[earlier]") {
  EarlierRunFolder f;
  f.renames.fails = {2};
  REQUIRE_FALSE(f.Look(SetAside::kWholeRun).Move().ok());
  fs::rename(f.run_dir / "checkpoints.previous", f.dir.path() / "elsewhere");
  const std::string folder = (f.run_dir / "checkpoints.previous").string();
  REQUIRE(*f.Look(SetAside::kWholeRun).Move() == folder);
  REQUIRE(fs::exists(f.run_dir / "checkpoints.previous" / "step_2"));
}

TEST_CASE("A record that is in both places is not replaced", "[earlier]") {
  EarlierRunFolder f;
  f.renames.fails = {2};
  REQUIRE_FALSE(f.Look(SetAside::kWholeRun).Move().ok());
  WriteRunFile(f.run_dir / "run.db-wal", "others");
  const absl::Status status = f.Look(SetAside::kWholeRun).Move().status();
  REQUIRE(absl::IsFailedPrecondition(status));
  REQUIRE(std::string(status.message()).find("run.db-wal") != std::string::npos);
}

TEST_CASE("Checkpoints that are a mount of their own move inside it, the records beside it",
          "[earlier]") {
  EarlierRunFolder f;
  f.renames.mounts = {f.checkpoints.dir()};
  const std::string folder = (f.run_dir / "checkpoints" / "run.previous").string();
  REQUIRE(f.Look(SetAside::kWholeRun).Folder() == folder);
  REQUIRE_FALSE(fs::exists(folder));
  const std::string records = (f.run_dir / "records.previous").string();
  REQUIRE(*f.Look(SetAside::kWholeRun).Move() == folder + ", its records in " + records);
  for (const char* name : {"step_1", "step_2", "latest", "finished"}) {
    INFO(name);
    REQUIRE(fs::exists(fs::path(folder) / name));
  }
  REQUIRE(*ReadWholeFile(records + "/run.db") == "records");
  REQUIRE(f.checkpoints.List().empty());
  REQUIRE(f.Look(SetAside::kWholeRun).Folder().empty());
}

TEST_CASE("Two file systems are told apart before anything moves", "[earlier]") {
  const testing::TempDir dir;
  const FolderRenames& renames = SystemRenames();
  REQUIRE(renames.CanMove(dir.path(), dir.path().parent_path()));
  REQUIRE(renames.CanMove(dir.path(), dir.path() / "missing"));
  REQUIRE_FALSE(renames.CanMove(dir.path(), "/proc"));
}

}  // namespace tandem
