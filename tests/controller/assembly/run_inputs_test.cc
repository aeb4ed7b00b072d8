// Reasons for which a run is refused before anything listens.
#include "controller/assembly/run_inputs.h"

#include <fstream>

#include <catch2/catch.hpp>

#include "common/config/loaded_config.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace tandem {
namespace {

struct Inputs {
  testing::TempDir dir;
  std::vector<std::string> overrides;

  explicit Inputs(const std::vector<std::string>& data_sources) {
    REQUIRE(testing::WriteTinyModel(dir.path() / "model").ok());
    std::ofstream rows(dir.path() / "train.jsonl");
    for (const std::string& source : data_sources) {
      rows << R"({"prompt": "What is 3 + 4?", "data_source": ")" << source
           << R"(", "reward_model": {"ground_truth": "7"}})"
           << "\n";
    }
    overrides = {"model.path=" + (dir.path() / "model").string(),
                 "data.train_files=" + (dir.path() / "train.jsonl").string(),
                 "data.train_batch_size=1"};
  }
  absl::Status Load(const std::vector<std::string>& more) const {
    std::vector<std::string> all = overrides;
    all.insert(all.end(), more.begin(), more.end());
    const auto loaded = LoadConfig("", all);
    REQUIRE(loaded.ok());
    return LoadRunInputs(loaded->config).status();
  }
};

TEST_CASE("A reward key that a row's reward has not is refused with the data source",
          "[run_inputs]") {
  const std::vector<std::string> gdpo = {"algorithm.adv_estimator=gdpo",
                                         "algorithm.gdpo_reward_keys=[score, acc]"};
  const absl::Status fine = Inputs({"math_dapo", "aime24"}).Load(gdpo);
  INFO(fine.ToString());
  REQUIRE(fine.ok());
  const absl::Status refused = Inputs({"math_dapo", "openai/gsm8k"}).Load(gdpo);
  INFO(refused.ToString());
  REQUIRE(absl::IsInvalidArgument(refused));
  REQUIRE(refused.message().find("algorithm.gdpo_reward_keys") != std::string::npos);
  REQUIRE(refused.message().find("data_source \"openai/gsm8k\"") != std::string::npos);
  const absl::Status filter =
      Inputs({"tandem/addition"})
          .Load({"algorithm.filter_groups.enable=true", "algorithm.filter_groups.metric=format"});
  INFO(filter.ToString());
  REQUIRE(absl::IsInvalidArgument(filter));
  REQUIRE(filter.message().find("algorithm.filter_groups.metric") != std::string::npos);
}

TEST_CASE("Fewer prompts than a round can draw are refused too", "[run_inputs]") {
  const Inputs inputs({"tandem/addition", "tandem/addition"});
  const std::vector<std::string> rounds = {"data.train_batch_size=1",
                                           "rollout.partial.max_tokens_per_round=1"};
  const auto load = [&](int64_t groups) {
    std::vector<std::string> keys = rounds;
    keys.push_back("rollout.partial.groups_per_round=" + std::to_string(groups));
    return inputs.Load(keys);
  };
  REQUIRE(load(2).ok());
  const absl::Status few = load(3);
  REQUIRE(absl::IsInvalidArgument(few));
  REQUIRE(few.message() ==
          "2 training prompts are fewer than rollout.partial.groups_per_round = 3; lower it, or "
          "give more rows in data.train_files");
  REQUIRE(inputs.Load({"data.train_batch_size=2", "rollout.partial.groups_per_round=3"}).ok());
}

TEST_CASE("Fewer prompts than a batch are refused with what to change", "[run_inputs]") {
  const Inputs inputs({"tandem/addition", "tandem/addition"});
  REQUIRE(inputs.Load({"data.train_batch_size=2"}).ok());
  const absl::Status few = inputs.Load({"data.train_batch_size=3"});
  REQUIRE(absl::IsInvalidArgument(few));
  REQUIRE(
      few.message() ==
      "2 training prompts are fewer than data.train_batch_size = 3; lower it, or give more rows "
      "in data.train_files");
  std::ofstream(inputs.dir.path() / "train.jsonl", std::ios::app)
      << R"({"prompt": "What is )" << std::string(400, '3')
      << R"( + 4?", "data_source": "tandem/addition", "reward_model": {"ground_truth": "7"}})";
  const absl::Status filtered =
      inputs.Load({"data.train_batch_size=3", "data.max_prompt_length=100"});
  REQUIRE(absl::IsInvalidArgument(filtered));
  INFO(filtered.ToString());
  REQUIRE(filtered.message().find("raise data.max_prompt_length = 100, above which 1 prompt(s)") !=
          std::string::npos);
}

}  // namespace
}  // namespace tandem
