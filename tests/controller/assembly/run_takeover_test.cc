#include "controller/assembly/run_takeover.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "common/formats/files.h"
#include "tandem/v1/config.pb.h"
#include "tests/fakes/failing_renames.h"
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/fake_run.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// A start that does not go on with the run in its directory: one step, one checkpoint, finished.
struct FinishedRunFolder {
  FinishedRunFolder() {
    config.mutable_cluster()->set_run_dir(run_dir);
    {
      auto earlier = SqliteRunStore::Open(run_dir + "/run.db").value();
      REQUIRE(earlier->RecordStep({.step = 1}).ok());
    }
    const std::string folder = checkpoints.Begin(1).value();
    std::ofstream(folder + "/shard-0") << "weights";
    REQUIRE(checkpoints.Commit(1, {.step = 1}).ok());
    REQUIRE(checkpoints.MarkFinished(1).ok());
    renames.renames = 0;
  }
  absl::Status TakeOver() {
    return TakeOverRunDir({.config = config,
                           .start = start,
                           .launch_id = launch_id,
                           .records = *records,
                           .checkpoints = checkpoints,
                           .tracker = tracker,
                           .journal = nullptr,
                           .progress = progress,
                           .disk = disk});
  }

  testing::TempDir dir;
  std::string run_dir = dir.path().string();
  v1::Config config;
  ResumePoint start{.set_aside = SetAside::kWholeRun};
  std::string launch_id = "a launch";
  std::unique_ptr<SqliteRunStore> records = SqliteRunStore::Open(":memory:").value();
  testing::FailingRenames renames;
  CheckpointIndex checkpoints = *CheckpointIndex::Open(run_dir + "/checkpoints", 0, renames);
  FanoutTracker tracker{std::vector<std::unique_ptr<Tracker>>()};
  testing::RecordingProgress progress;
  testing::FakeClock clock;
  bool ended = false;
  DiskWait disk{clock, {.ended = [this] { return ended; }}};
};

}  // namespace

TEST_CASE("A start takes a run directory over, and waits for a disk that refuses the move",
          "[takeover]") {
  FinishedRunFolder f;
  f.renames.error = ENOSPC;
  f.renames.fails = {1, 2, 4};
  const Instant begin = f.clock.Now();
  const absl::Status taken = f.TakeOver();
  INFO(taken.message());
  REQUIRE(taken.ok());
  REQUIRE(f.clock.Now() - begin == absl::Seconds(30));
  const std::string previous = f.run_dir + "/checkpoints.previous";
  REQUIRE(SqliteRunStore::Open(previous + "/run.db").value()->ListSteps({})->size() == 1);
  REQUIRE(fs::exists(previous + "/step_1/shard-0"));
  REQUIRE(fs::exists(previous + "/finished"));
  REQUIRE_FALSE(fs::exists(previous + "-2"));
  REQUIRE_FALSE(f.checkpoints.FinishedStep());
  REQUIRE(f.records->ListSteps({})->empty());
  REQUIRE(fs::exists(f.run_dir + "/run.db"));
  REQUIRE(fs::exists(f.run_dir + "/samples"));
  REQUIRE(ReadWholeFile(f.run_dir + "/launch").value() == "a launch");
}

TEST_CASE("A start that is stopped while it waits leaves a run as finished as it was",
          "[takeover]") {
  FinishedRunFolder f;
  f.renames.error = ENOSPC;
  for (int rename = 1; rename <= 100; ++rename) f.renames.fails.insert(rename);
  f.clock.OnSleep([&] { f.ended = true; });
  const absl::Status taken = f.TakeOver();
  REQUIRE(absl::IsResourceExhausted(taken));
  REQUIRE(std::string(taken.message()).find("stopped while it waited") != std::string::npos);
  REQUIRE(f.checkpoints.FinishedStep() == 1);
  REQUIRE_FALSE(fs::exists(f.run_dir + "/launch"));
  // The next start ends what this one has begun.
  f.renames.fails.clear();
  REQUIRE(f.TakeOver().ok());
  REQUIRE(fs::exists(f.run_dir + "/checkpoints.previous/run.db"));
  REQUIRE_FALSE(fs::exists(f.run_dir + "/checkpoints.previous-2"));
}

TEST_CASE("A start that is given up because of another error does not wait", "[takeover]") {
  FinishedRunFolder f;
  f.renames.error = EACCES;
  f.renames.fails = {1};
  const Instant begin = f.clock.Now();
  REQUIRE(absl::IsPermissionDenied(f.TakeOver()));
  REQUIRE(f.clock.Now() == begin);
}

}  // namespace tandem
