#include "controller/cli/steps_command.h"

#include <sstream>

#include <catch2/catch.hpp>

#include "common/base/status.h"
#include "common/formats/files.h"
#include "controller/cli/report_command.h"
#include "controller/store/checkpoint_index.h"
#include "controller/store/sqlite/sqlite_run_store.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {

using testing::Has;

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
  const auto listed = [&](const StepsOptions& options) {
    std::ostringstream out;
    REQUIRE(StepsOfRun(dir.path(), options, out).ok());
    return out.str();
  };
  const std::string all = listed({});
  REQUIRE(Has(all, "0.125"));
  REQUIRE(Has(all, "0.25"));
  REQUIRE_FALSE(Has(all, "0.375"));
  REQUIRE_FALSE(Has(listed({.first_step = 2}), "0.125"));
  REQUIRE(Has(listed({.undone = true}), "generation 4"));
  REQUIRE(listed({.last_step = 2, .undone = true}) == "no step was undone\n");
  const std::string json = listed({.json = true});
  REQUIRE(Has(json, "\"step\":\"2\""));
  REQUIRE(Has(json, "\"seconds\":2.5"));
  REQUIRE(ReadWholeFile(database).value() == before);
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
  const auto listed = [&](const StepsOptions& options) {
    std::ostringstream out;
    REQUIRE(StepsOfRun(run_dir, options, out).ok());
    return out.str();
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
  REQUIRE_FALSE(Has(listed({.json = true}), "in no checkpoint"));
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
  std::ostringstream out;
  REQUIRE(absl::IsNotFound(StepsOfRun(dir.path(), {}, out)));
}

}  // namespace tandem
