#include "controller/run/trainer_group_counter.h"

#include <fstream>

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Says;

TEST_CASE("Generations go on where the last controller of the run stopped",
          "[trainer_group_counter]") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "generation";
  {
    TrainerGroupCounter first(path);
    REQUIRE(first.Next().value() == 1);
    REQUIRE(first.Next().value() == 2);
  }
  TrainerGroupCounter second(path);
  REQUIRE(second.Next().value() == 3);
}

TEST_CASE("A generation file that holds no number is refused by name", "[trainer_group_counter]") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "generation";
  for (const char* text : {"", "soon", "-3", "99999999999999"}) {
    std::ofstream(path) << text;
    const absl::Status refused = TrainerGroupCounter(path).Next().status();
    REQUIRE(refused.code() == absl::StatusCode::kDataLoss);
    REQUIRE(Says(refused, path));
    REQUIRE(Says(refused, "remove the file"));
  }
}

TEST_CASE("A generation that cannot be kept is not given out", "[trainer_group_counter]") {
  const testing::TempDir dir;
  REQUIRE_FALSE(TrainerGroupCounter(dir.path() / "missing" / "generation").Next().ok());
}

}  // namespace
}  // namespace tandem
