#include "controller/cli/runs/compare_command.h"

#include <filesystem>
#include <sstream>
#include <string>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "controller/store/sqlite/sqlite_run_store.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

std::string MakeRun(const testing::TempDir& dir, const std::string& name, double reward) {
  const std::filesystem::path run = dir.path() / name;
  std::filesystem::create_directories(run);
  const auto store = SqliteRunStore::Open(run / "run.db").value();
  REQUIRE(store->RecordRun({.run_id = name, .config_yaml = "rollout:\n  n: 2\n"}).ok());
  REQUIRE(store->RecordStep({.step = 1, .metrics = {{kRewardMean, reward}}}).ok());
  return run.string();
}

}  // namespace

TEST_CASE("Two runs are compared in words and in JSON", "[ctl]") {
  const testing::TempDir dir;
  CompareOptions options = {.a = MakeRun(dir, "one", 0.25), .b = MakeRun(dir, "two\n", 0.25)};
  std::ostringstream same;
  REQUIRE(CompareCommand(options, same).value());
  testing::RequireSaid(same.str(),
                       {"equal in step 1: tokens and what is known of each in 0 of them",
                        "the same but for names and folders", kRewardMean, "two\\n"});

  options.b = MakeRun(dir, "three", 0.5);
  std::ostringstream words, machine;
  REQUIRE_FALSE(CompareCommand(options, words).value());
  testing::RequireSaid(
      words.str(), {"the runs part in step 1: metric, critic/rewards/mean", "a  0.25", "b  0.5"});
  options.json = true;
  REQUIRE_FALSE(CompareCommand(options, machine).value());
  const nlohmann::json json = nlohmann::json::parse(machine.str());
  REQUIRE(json["equal"] == false);
  REQUIRE(json["difference"]["step"] == 1);
  REQUIRE(json["difference"]["a"] == "0.25");
}

TEST_CASE("A folder without a run cannot be compared", "[ctl]") {
  const testing::TempDir dir;
  const std::string run = MakeRun(dir, "one", 0.25);
  std::ostringstream out;
  const auto nothing = CompareCommand({.a = run, .b = dir.path() / "nothing"}, out);
  REQUIRE(absl::IsNotFound(nothing.status()));
  REQUIRE(testing::Says(nothing.status(), "there is no run in"));
  REQUIRE(
      absl::IsFailedPrecondition(CompareCommand({.a = run, .b = run, .step = 2}, out).status()));
  REQUIRE(out.str().empty());
}

}  // namespace tandem
