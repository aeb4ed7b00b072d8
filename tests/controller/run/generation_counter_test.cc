#include "controller/run/generation_counter.h"

#include <fstream>

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Says;

TEST_CASE("Generations go on where the last controller of the run stopped",
          "[generation_counter]") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "generation";
  {
    GenerationCounter first(path);
    REQUIRE(first.Next().value() == 1);
    REQUIRE(first.Next().value() == 2);
  }
  GenerationCounter second(path);
  REQUIRE(second.Next().value() == 3);
}

TEST_CASE("A generation file that holds no number is refused by name", "[generation_counter]") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "generation";
  for (const char* text : {"", "soon", "-3", "99999999999999"}) {
    std::ofstream(path) << text;
    const absl::Status refused = GenerationCounter(path).Next().status();
    REQUIRE(refused.code() == absl::StatusCode::kDataLoss);
    REQUIRE(Says(refused, path));
    REQUIRE(Says(refused, "remove the file"));
  }
}

TEST_CASE("A generation that cannot be kept is not given out", "[generation_counter]") {
  const testing::TempDir dir;
  REQUIRE_FALSE(GenerationCounter(dir.path() / "missing" / "generation").Next().ok());
}

}  // namespace
}  // namespace tandem
