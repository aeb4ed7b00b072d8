#include "controller/cli/local_commands.h"

#include <sstream>

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)

TEST_CASE("The local commands refuse unknown names with the known ones", "[ctl][local]") {
  const testing::TempDir dir;
  std::ostringstream out;
  REQUIRE(std::string(MakeDataCommand("chess", dir.path(), {}, out).message()).find("addition") !=
          std::string::npos);
  REQUIRE(std::string(ConvertDataCommand("csv", "a", "b", out).message()).find("gsm8k, math") !=
          std::string::npos);
  REQUIRE_FALSE(ConfigExplainCommand("rollout.nn", out).ok());
  FailedAt failed_at = FailedAt::kRun;
  REQUIRE_FALSE(ConfigCheckCommand("/nonexistent.yaml", {}, &failed_at, out).ok());
  REQUIRE(failed_at == FailedAt::kConfig);
  REQUIRE_FALSE(ImportGgufCommand("/nonexistent.gguf", (dir.path() / "m").string(), out).ok());
}

TEST_CASE("The local commands say what they wrote and what a key means", "[ctl][local]") {
  const testing::TempDir dir;
  std::ostringstream out;
  REQUIRE(MakeDataCommand("addition", dir.path(), {5, 0.2, 1}, out).ok());
  REQUIRE(out.str().find("train.jsonl") != std::string::npos);
  REQUIRE(ConfigExplainCommand("rollout.n", out).ok());
  REQUIRE(out.str().find("rollout.n") != std::string::npos);
}
