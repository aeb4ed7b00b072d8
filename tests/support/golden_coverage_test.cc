// No case of a golden set is missed: every kind is checked by some file or skipped by name.
#include <filesystem>
#include <set>

#include <catch2/catch.hpp>

#include "tests/support/golden.h"

namespace tandem::testing {
namespace {

TEST_CASE("Every kind of the golden set is checked or skipped by name", "[golden]") {
  REQUIRE(GoldenGaps(GoldenDir()) == std::vector<std::string>{});
}

TEST_CASE("No kind is both checked and skipped, and who checks it is a test file", "[golden]") {
  const std::set<std::string> skips = GoldenSkips();
  std::set<std::string> test_files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("tests")) {
    if (entry.path().extension() == ".cc") test_files.insert(entry.path().stem());
  }
  REQUIRE_FALSE(GoldenKinds().empty());
  for (const auto& [kind, test_file] : GoldenKinds()) {
    INFO(kind << " " << test_file);
    REQUIRE_FALSE(skips.contains(kind));
    REQUIRE(test_files.contains(test_file));
  }
}

}  // namespace
}  // namespace tandem::testing
