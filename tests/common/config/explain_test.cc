#include <string>

#include <catch2/catch.hpp>

#include "common/config/config.h"
#include "common/config/schema.h"

namespace tandem {
namespace {

std::string Explain(const std::string& key) {
  const auto text = ExplainConfig(key);
  INFO(text.status().ToString());
  REQUIRE(text.ok());
  return *text;
}

TEST_CASE("every key of the schema has a meaning, and every list default and alias is sound") {
  for (const KeySpec& spec : ConfigSchema()) {
    INFO(spec.key);
    REQUIRE_FALSE(spec.info.doc().empty());
    REQUIRE(FindKey(spec.key) == &spec);
    for (const std::string& alias : spec.info.aliases()) {
      REQUIRE(FindKey(alias) == nullptr);
      REQUIRE(CanonicalKey(alias) == spec.key);
    }
  }
}

TEST_CASE("explaining a key tells type, default, meaning, unit, range and other names") {
  REQUIRE(Explain("data.max_prompt_length") ==
          "data.max_prompt_length\n"
          "  meaning   Longest prompt after the chat template.\n"
          "  type      whole number\n"
          "  default   512\n"
          "  unit      tokens\n"
          "  range     1 to 1073741824\n"
          "  also      actor_rollout_ref.rollout.prompt_length, rollout.prompt_length\n");
  REQUIRE(Explain("algorithm.adv_estimator").find("verl's default is gae") != std::string::npos);
  REQUIRE(Explain("model.path").find("none: required") != std::string::npos);
}

TEST_CASE("explaining nothing lists sections, and a section its keys") {
  REQUIRE(Explain("").find("weight_sync") != std::string::npos);
  const std::string section = Explain("rollout");
  REQUIRE(section.find("rollout.val_kwargs.temperature") != std::string::npos);
  REQUIRE(section.find("\n  actor.") == std::string::npos);
  REQUIRE(Explain("reward.terms").find("reward.terms[].weight") != std::string::npos);
}

TEST_CASE("aliases are explained, and a wrong key gets the nearest one") {
  REQUIRE(Explain("actor_rollout_ref.rollout.n")
              .find("actor_rollout_ref.rollout.n is verl's name for rollout.n\nrollout.n\n") == 0);
  REQUIRE(std::string(ExplainConfig("rollout.temprature").status().message()) ==
          "rollout.temprature is not a config key; did you mean rollout.temperature?");
}

}  // namespace
}  // namespace tandem
