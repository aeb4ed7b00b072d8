#include <algorithm>

#include <catch2/catch.hpp>

#include "common/config/loaded_config.h"

namespace tandem {
namespace {

v1::Config LoadOverrides(const std::vector<std::string>& overrides) {
  const auto loaded = LoadConfig("", overrides);
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  return loaded->config;
}

TEST_CASE("a config differs from itself in nothing, from another in its keys") {
  const v1::Config before = LoadOverrides({"rollout.stop=[a, \"1\"]", "trainer.logger=[]"});
  REQUIRE(DiffConfig(ConfigToYaml(before), before)->empty());
  const auto changes = DiffConfig(ConfigToYaml(before), LoadOverrides({"rollout.val_kwargs.n=2"}));
  REQUIRE(changes->size() == 3);
  const auto found = std::find_if(changes->begin(), changes->end(), [](const ConfigChange& change) {
    return change.key == "rollout.val_kwargs.n";
  });
  REQUIRE(found != changes->end());
  REQUIRE(found->before == "1");
  REQUIRE(found->now == "2");
}

TEST_CASE("keys that only one version knows are no difference") {
  const auto changes = DiffConfig("rollout: {n: 3, gone: 1}\nold: {a: 1}\n", LoadOverrides({}));
  REQUIRE(changes->size() == 1);
  REQUIRE(changes->front().key == "rollout.n");
  REQUIRE(DiffConfig("", LoadOverrides({}))->empty());
  REQUIRE_FALSE(DiffConfig("a: [", LoadOverrides({})).ok());
}

}  // namespace
}  // namespace tandem
