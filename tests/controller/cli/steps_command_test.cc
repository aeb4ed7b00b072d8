#include "controller/cli/steps_command.h"

#include <sstream>

#include <catch2/catch.hpp>

#include "common/formats/files.h"
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

TEST_CASE("The steps of a directory without a run are refused", "[ctl]") {
  const testing::TempDir dir;
  std::ostringstream out;
  REQUIRE(absl::IsNotFound(StepsOfRun(dir.path(), {}, out)));
}

}  // namespace tandem
