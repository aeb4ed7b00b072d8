// The reader of golden sets refuses files with which a test would pass without checking anything.
#include "tests/support/golden.h"

#include <cstdlib>
#include <fstream>

#include <catch2/catch.hpp>
#include <zlib.h>

#include "tests/support/temp_dir.h"

namespace tandem::testing {
namespace {

void Write(const TempDir& dir, const std::string& name, const std::string& text) {
  std::ofstream(dir.path() / name) << text;
}

void WritePacked(const std::filesystem::path& path, const std::string& text) {
  const gzFile file = gzopen(path.c_str(), "wb");
  REQUIRE(file != nullptr);
  REQUIRE(gzwrite(file, text.data(), static_cast<unsigned>(text.size())) ==
          static_cast<int>(text.size()));
  REQUIRE(gzclose(file) == Z_OK);
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
                      Catch::Contains("TANDEM_TEST_FOLDER") && Catch::Contains("not a folder"));
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

TEST_CASE("A packed family is read as a plain one") {
  TempDir dir;
  WritePacked(dir.path() / "rewards.json.gz", R"({"cases": [{"id": "a", "fn": "gsm8k"}]})");
  const GoldenFamily family = ReadGoldenFamily(dir.path(), "rewards");
  REQUIRE(family.cases.size() == 1);
  REQUIRE(family.cases[0].fn == "gsm8k");
  REQUIRE(GoldenGaps(dir.path()).empty());
}

TEST_CASE("A packed family that is cut off is an error and a gap") {
  TempDir dir;
  const std::filesystem::path file = dir.path() / "rewards.json.gz";
  WritePacked(file, R"({"cases": [{"id": "a", "fn": "gsm8k"}]})");
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 12);
  REQUIRE_THROWS_WITH(ReadGoldenFamily(dir.path(), "rewards"), Catch::Contains("is damaged"));
  REQUIRE(OnlyGap(dir).find("is damaged") != std::string::npos);
}

TEST_CASE(
    "A difference in a case that no family has is a gap, one in a case that is there is none") {
  TempDir dir;
  Write(dir, "rewards.json", R"({"cases": [{"id": "a/b", "fn": "gsm8k"}]})");
  Write(dir, "differences.txt", "# a reason\nrewards/a/b\n");
  REQUIRE(GoldenDifferences(dir.path()) == std::set<std::string>{"rewards/a/b"});
  REQUIRE(GoldenGaps(dir.path()).empty());
  Write(dir, "differences.txt", "rewards/a/c\n");
  REQUIRE(OnlyGap(dir).find("no family has the case rewards/a/c") != std::string::npos);
}

TEST_CASE("TANDEM_GOLDEN names a committed set, and another word is an error") {
  REQUIRE(setenv("TANDEM_GOLDEN", "verl", 1) == 0);
  REQUIRE(GoldenDir() == VerlGoldenDir());
  REQUIRE(setenv("TANDEM_GOLDEN", "committed", 1) == 0);
  REQUIRE(GoldenDir() == CommittedGoldenDir());
  REQUIRE(setenv("TANDEM_GOLDEN", "other", 1) == 0);
  REQUIRE_THROWS_WITH(GoldenDir(), Catch::Contains("'other'") && Catch::Contains("'verl'"));
  REQUIRE(unsetenv("TANDEM_GOLDEN") == 0);
}

TEST_CASE("verl's set is there: a family that is missing fails, it is not skipped") {
  for (const char* family : {"policy_losses", "kl_penalty", "advantages"}) {
    INFO(family);
    REQUIRE_FALSE(ReadGoldenFamily(VerlGoldenDir(), family).cases.empty());
  }
  REQUIRE_THROWS_WITH(ReadGoldenFamily(VerlGoldenDir(), "missing"), Catch::Contains("cannot open"));
}

TEST_CASE("A family without cases and a file that is not JSON are gaps") {
  TempDir dir;
  Write(dir, "rewards.json", R"({"cases": []})");
  REQUIRE(OnlyGap(dir).find("no cases") != std::string::npos);
  Write(dir, "rewards.json", "{");
  REQUIRE(OnlyGap(dir).find("not JSON") != std::string::npos);
}

}  // namespace
}  // namespace tandem::testing
