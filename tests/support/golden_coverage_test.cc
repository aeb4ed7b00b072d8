// No case of a golden set goes unseen: every kind is checked by some program or skipped by name.
#include <filesystem>
#include <set>

#include <catch2/catch.hpp>

#include "tests/support/golden.h"

namespace tandem::testing {
namespace {

std::filesystem::path GoldenDir() {
#ifdef TANDEM_COMMITTED_GOLDEN
  return CommittedGoldenDir();
#else
  return GoldenDirOrSkip();
#endif
}

TEST_CASE("Every kind of the golden set is checked or skipped by name", "[golden]") {
  REQUIRE(GoldenGaps(GoldenDir()) == std::vector<std::string>{});
}

TEST_CASE("No kind is both checked and skipped, and who checks it is a program", "[golden]") {
  const std::set<std::string> skips = GoldenSkips();
  const auto programs = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  REQUIRE_FALSE(GoldenKinds().empty());
  for (const auto& [kind, program] : GoldenKinds()) {
    INFO(kind << " " << program);
    REQUIRE_FALSE(skips.contains(kind));
    REQUIRE(std::filesystem::exists(programs / program));
  }
}

}  // namespace
}  // namespace tandem::testing
