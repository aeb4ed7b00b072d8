// Config files that mean more than they say.
#include "common/config/yaml_limits.h"

#include <string>

#include <catch2/catch.hpp>

#include "common/config/loaded_config.h"
#include "tests/common/config/config_file.h"

namespace tandem {
namespace {

using Catch::Matchers::Contains;

std::string Laughs(int levels) {
  std::string yaml = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < levels; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    yaml += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int k = 0; k < 10; ++k) yaml += (k > 0 ? ", " : "") + before;
    yaml += "]\n";
  }
  return yaml;
}

std::string LimitError(const std::string& yaml) {
  const testing::ConfigFile file(yaml);
  const auto loaded = LoadConfig(file.path(), {});
  REQUIRE(loaded.status().code() == absl::StatusCode::kInvalidArgument);
  std::string message(loaded.status().message());
  REQUIRE_THAT(message, Contains(file.path()));
  return message;
}

TEST_CASE("aliases of aliases that stand for more than memory holds are refused with the line") {
  REQUIRE_THAT(LimitError(Laughs(9)),
               Contains(":5: with every alias replaced by what it names there are more than "
                        "100000 values"));
  REQUIRE(CheckYamlLimits(Laughs(4)).ok());
}

TEST_CASE("an alias within what it names is refused") {
  REQUIRE_THAT(LimitError("rollout: &a\n  stop: [*a]\n"),
               Contains(":2: an alias is inside the value that it names"));
}

TEST_CASE("lists within lists without end are refused, in a file and in --set") {
  const std::string deep = std::string(70, '[') + std::string(70, ']');
  REQUIRE_THAT(LimitError("x: " + deep + "\n"), Contains("more than 64 levels deep"));
  const auto loaded = LoadConfig("", {"rollout.stop=" + deep});
  REQUIRE_THAT(std::string(loaded.status().message()),
               Contains("rollout.stop") && Contains("more than 64 levels deep"));
}

TEST_CASE("levels and values behind an alias count where it stands") {
  std::string yaml = "a: &a " + std::string(40, '[') + std::string(40, ']') +
                     "\nb: " + std::string(30, '[') + "*a" + std::string(30, ']') + "\n";
  REQUIRE_THAT(LimitError(yaml), Contains(":2: ") && Contains("more than 64 levels deep"));
}

TEST_CASE("a config file of megabytes is refused before it is parsed") {
  REQUIRE_THAT(LimitError(std::string((1 << 20) + 1, '#')),
               Contains("too many for a configuration"));
}

TEST_CASE("a text that is not UTF-8 is refused with the line, and does not end the process") {
  REQUIRE_THAT(LimitError("rollout:\n  stop: [\x8C]\n"),
               Contains(":2: a value or key is not UTF-8"));
}

TEST_CASE("what is not YAML is left to the parser, which says why") {
  REQUIRE(CheckYamlLimits("a: [1").ok());
  REQUIRE_THAT(LimitError("a: [1"), Contains("this is not YAML"));
}

}  // namespace
}  // namespace tandem
