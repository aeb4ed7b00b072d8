#include "controller/cli/report_command.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <catch2/catch.hpp>

#include "common/formats/files.h"
#include "controller/store/sqlite/sqlite_run_store.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {

using testing::Has;

TEST_CASE("The report of a run can be made from its records, which stay as they are",
          "[ctl][report]") {
  const testing::TempDir dir;
  const std::string database = dir.path() / "run.db";
  {
    const auto store = SqliteRunStore::Open(database).value();
    REQUIRE(store->RecordRun({.run_id = "p/e/1", .build = "of today", .total_steps = 3}).ok());
    REQUIRE(store->RecordStep({.step = 1, .metrics = {{kRewardMean, 0.5}}}).ok());
    REQUIRE(store->RecordStep({.step = 2, .metrics = {{kRewardMean, 0.5}}}).ok());
    REQUIRE(store->RecordSamples(1, {{.sample_id = 1, .step = 1, .response = "the first"}}).ok());
    REQUIRE(store->UndoAfter(1, 4).ok());
  }
  const std::string before = ReadWholeFile(database).value();
  std::ostringstream out;
  REQUIRE(ReportCommand({.run_dir = dir.path()}, out).ok());
  REQUIRE(Has(out.str(), "report.html: 1 steps of p/e/1"));
  const std::string html = ReadWholeFile(dir.path() / "report.html").value();
  REQUIRE(Has(html, "1 of 3 steps are recorded"));
  REQUIRE(Has(html, "Build of today"));
  REQUIRE(Has(html, "the first"));
  REQUIRE(Has(html, "step 2 by generation 4"));
  REQUIRE(ReportCommand({.run_dir = dir.path(), .html = dir.path() / "other.html"}, out).ok());
  REQUIRE(ReadWholeFile(dir.path() / "other.html").value() == html);
  REQUIRE(ReadWholeFile(database).value() == before);
}

TEST_CASE("A report without a run is refused with what to do", "[ctl][report]") {
  const testing::TempDir dir;
  std::ostringstream out;
  REQUIRE(absl::IsInvalidArgument(ReportCommand({}, out)));
  const absl::Status json = ReportCommand({.run_dir = dir.path(), .json = true}, out);
  REQUIRE(Has(std::string(json.message()), "leave --json out"));
  REQUIRE(absl::IsNotFound(ReportCommand({.run_dir = dir.path()}, out)));
  std::ofstream(dir.path() / "run.db") << std::string(4096, 'x');
  const absl::Status garbage = ReportCommand({.run_dir = dir.path()}, out);
  REQUIRE(absl::IsDataLoss(garbage));
  REQUIRE(Has(std::string(garbage.message()), "bring back a copy of it"));
  REQUIRE_FALSE(std::filesystem::exists(dir.path() / "report.html"));
}

}  // namespace tandem
