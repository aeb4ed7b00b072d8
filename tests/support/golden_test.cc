// The reader of golden sets refuses files with which a test would pass without checking anything.
#include "tests/support/golden.h"

#include <cstdlib>
#include <fstream>

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.h"

namespace tandem::testing {
namespace {

void Write(const TempDir& dir, const std::string& name, const std::string& text) {
  std::ofstream(dir.path() / name) << text;
}

std::string OnlyGap(const TempDir& dir) {
  const std::vector<std::string> gaps = GoldenGaps(dir.path());
  REQUIRE(gaps.size() == 1);
  return gaps[0];
}

TEST_CASE("A named folder that is not there fails, it is not skipped") {
  TempDir dir;
  REQUIRE(setenv("TANDEM_TEST_FOLDER", (dir.path() / "missing").c_str(), 1) == 0);
  REQUIRE_THROWS_WITH(FolderOrSkip("TANDEM_TEST_FOLDER", "tests"),
                      Catch::Contains("TANDEM_TEST_FOLDER") && Catch::Contains("no folder"));
  REQUIRE(setenv("TANDEM_TEST_FOLDER", dir.path().c_str(), 1) == 0);
  REQUIRE(FolderOrSkip("TANDEM_TEST_FOLDER", "tests") == dir.path());
  REQUIRE(unsetenv("TANDEM_TEST_FOLDER") == 0);
  REQUIRE(FolderOrSkip("TANDEM_TEST_FOLDER", "tests") == "tests");
}

TEST_CASE("An empty golden folder is a gap") {
  TempDir dir;
  REQUIRE(OnlyGap(dir).find("no golden family") != std::string::npos);
}

TEST_CASE("A kind that no list names is a gap, one of either list is none") {
  TempDir dir;
  Write(dir, "rewards.json", R"({"cases": [{"id": "a", "fn": "gsm8k"}, {"id": "b", "fn": "new"},
                                           {"id": "c", "fn": "math_dapo"}]})");
  REQUIRE(OnlyGap(dir).starts_with("rewards/new: "));
}

TEST_CASE("A family that no list names is a gap") {
  TempDir dir;
  Write(dir, "other.json", R"({"cases": [{"id": "a", "fn": "gsm8k"}]})");
  REQUIRE(OnlyGap(dir).starts_with("other/gsm8k: "));
}

TEST_CASE("A family without cases and a file that is no JSON are gaps") {
  TempDir dir;
  Write(dir, "rewards.json", R"({"cases": []})");
  REQUIRE(OnlyGap(dir).find("no cases") != std::string::npos);
  Write(dir, "rewards.json", "{");
  REQUIRE(OnlyGap(dir).find("no JSON") != std::string::npos);
}

}  // namespace
}  // namespace tandem::testing
