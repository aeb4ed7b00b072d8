// The configs that come with the repository work as they are, and docs/reference/config.md is what
// the schema says. Run from the repository root.
#include <filesystem>
#include <fstream>
#include <sstream>

#include <catch2/catch.hpp>

#include "common/config/check.h"
#include "common/config/loaded_config.h"
#include "controller/algorithm/advantage_estimator.h"
#include "controller/reward/check_reward.h"

namespace tandem {
namespace {

TEST_CASE("every config of the repository loads and is valid") {
  size_t configs = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("configs")) {
    if (entry.path().extension() != ".yaml") continue;
    INFO(entry.path());
    // Where the repository lies may be too long for sockets in a run directory of its own.
    auto loaded = LoadConfig(entry.path(), {"cluster.run_dir=/tmp/run"});
    INFO(loaded.status().ToString());
    REQUIRE(loaded.ok());
    REQUIRE_FALSE(loaded->origins.empty());
    const std::array<ConfigCheck, 2> checks = {CheckAdvantageEstimator, CheckReward};
    const absl::Status valid = CheckConfigValues(*loaded, checks);
    INFO(valid.ToString());
    REQUIRE(valid.ok());
    REQUIRE(loaded->notices.empty());  // our own spelling of every key
    ++configs;
  }
  REQUIRE(configs >= 18);
}

TEST_CASE("docs/reference/config.md is what tandem-config-docs prints") {
  std::ifstream file("docs/reference/config.md");
  REQUIRE(file);
  std::ostringstream text;
  text << file.rdbuf();
  INFO("make it anew: build/bin/tandem-config-docs > docs/reference/config.md");
  REQUIRE((text.str() == ConfigMarkdown()));
}

}  // namespace
}  // namespace tandem
