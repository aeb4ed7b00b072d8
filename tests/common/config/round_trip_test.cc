#include <filesystem>

#include <catch2/catch.hpp>
#include <google/protobuf/util/message_differencer.h>

#include "common/config/check.h"
#include "common/config/loaded_config.h"
#include "tests/common/config/config_file.h"

namespace tandem {
namespace {

void RequireRoundTrip(const v1::Config& config) {
  const testing::ConfigFile file(ConfigToYaml(config));
  const auto again = LoadConfig(file.path(), {});
  INFO(again.status().ToString());
  REQUIRE(again.ok());
  std::string difference;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.set_message_field_comparison(google::protobuf::util::MessageDifferencer::EQUIVALENT);
  differencer.ReportDifferencesToString(&difference);
  const bool equal = differencer.Compare(config, again->config);
  INFO(difference);
  REQUIRE(equal);
}

TEST_CASE("a resolved config printed as YAML loads back equal") {
  RequireRoundTrip(DefaultConfig());
  const auto loaded = LoadConfig(
      "", {"rollout.stop=[\"a: b\", \"#c\", \"\\n\"]", "actor.optim.lr=1.23456789e-7",
           "reward.terms=[{name: length, args: {a: 1}}]", "trainer.logger=[]",
           "data.apply_chat_template_kwargs={enable_thinking: false}", "model.path=/with space"});
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  RequireRoundTrip(loaded->config);
}

TEST_CASE("every config that comes with the repository loads and its values are valid") {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("configs")) {
    if (entry.path().extension() != ".yaml") continue;
    auto loaded = LoadConfig(entry.path().string(), {"cluster.run_dir=/r"});
    INFO(entry.path() << " " << loaded.status().ToString());
    REQUIRE(loaded.ok());
    REQUIRE(loaded->notices.empty());
    const absl::Status valid = CheckConfigValues(*loaded);
    INFO(valid.ToString());
    REQUIRE(valid.ok());
    ++count;
  }
  REQUIRE(count >= 3);
}

}  // namespace
}  // namespace tandem
