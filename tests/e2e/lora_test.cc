// LoRA with real processes: adapters train, the rollout serves one merged weight, every byte of it
// is checked at each sync, and whichever process dies, the run ends with the same bits.
#include <filesystem>
#include <regex>
#include <set>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"

namespace tandem::testing {
namespace {

RigOptions WithLora(std::map<std::string, std::string> more = {}) {
  RigOptions options;
  options.config = {{"model.lora.rank", "4"},
                    {"model.lora.alpha", "8"},
                    {"actor.optim.lr", "0.01"},
                    {"weight_sync.check", "always"}};
  options.config.insert(more.begin(), more.end());
  return options;
}

TEST_CASE("adapters train through sleep of level 2, and every log-prob is identical") {
  const Outcome outcome = RunUndisturbed(WithLora({{"rollout.free_cache_engine", "true"},
                                                   {"rollout.sleep_level", "2"},
                                                   {"actor.use_kl_loss", "true"}}));
  RequireLearned(outcome, 3);
  for (int64_t step = 1; step <= 3; ++step) {
    REQUIRE(outcome.metrics.at(step).at("training/rollout_probs_diff_max").get<double>() == 0.0);
    REQUIRE(outcome.metrics.at(step).at("actor/ratio_max").get<double>() == 1.0);
  }
  // The reference is the base: what was trained has left it.
  REQUIRE(outcome.metrics.at(1).at("actor/kl_loss").get<double>() == 0.0);
  REQUIRE(outcome.metrics.at(3).at("actor/kl_loss").get<double>() > 0.0);
  REQUIRE(outcome.weights != Undisturbed().weights);
}

TEST_CASE("a trainer of adapters killed between two buckets of a sync") {
  const RigOptions options = WithLora();
  RequireRecovery({"trainer", 1, "sync.bucket", 2}, options, RunUndisturbed(options));
}

TEST_CASE("a trainer of adapters killed while it trains") {
  const RigOptions options = WithLora();
  RequireRecovery({"trainer", 0, "train", 2}, options, RunUndisturbed(options));
}

RigOptions Beside(std::map<std::string, std::string> more = {}) {
  more.insert({"model.lora.merge", "false"});
  return WithLora(std::move(more));
}

// "version V: N tensors, B bytes went to the rollout": B of each version that a trainer has sent.
std::map<int64_t, std::vector<int64_t>> SentBytes(const std::string& log) {
  std::map<int64_t, std::vector<int64_t>> sent;
  const std::regex line(R"(version (\d+): \d+ tensors, (\d+) bytes went to the rollout)");
  for (std::sregex_iterator at(log.begin(), log.end(), line), end; at != end; ++at) {
    sent[std::stoll((*at)[1])].push_back(std::stoll((*at)[2]));
  }
  return sent;
}

TEST_CASE("adapters beside the base cross alone after sleep of level 1, with it after level 2") {
  for (const std::string level : {"1", "2"}) {
    ClusterRig rig(Beside({{"rollout.free_cache_engine", "true"},
                           {"rollout.sleep_level", level},
                           {"weight_sync.scramble", "always"}}));
    rig.SetPairs(2);
    rig.Set("trainer.total_training_steps", "3");
    const int code = rig.Launch().Wait();
    INFO(rig.Log("launcher") << rig.Log("controller") << rig.Log("trainer"));
    REQUIRE(code == 0);
    RequireLearned(OutcomeOf(rig, 3), 3);
    for (int64_t step = 1; step <= 3; ++step) {
      const auto metrics = rig.Metrics().at(step);
      REQUIRE(metrics.at("training/rollout_probs_diff_max").get<double>() == 0.0);
      REQUIRE(metrics.at("training/rollout_log_probs_identical") == 1.0);
    }
    const auto sent = SentBytes(rig.Log("trainer"));
    REQUIRE(sent.size() == 4);
    const int64_t whole = sent.at(0).at(0);
    for (int64_t version = 1; version <= 3; ++version) {
      REQUIRE(sent.at(version).size() == 1);
      const int64_t bytes = sent.at(version)[0];
      REQUIRE((level == "1" ? bytes < whole / 2 : bytes == whole));
    }
  }
}

TEST_CASE("who dies with adapters beside the base: the run comes to the same bits") {
  const RigOptions options = Beside();
  const Outcome expected = RunUndisturbed(options);
  SECTION("a rollout while it generates, which is sent the base again") {
    RequireRecovery({"rollout", 1, "generate", 30}, options, expected);
  }
  SECTION("a trainer between two buckets of a sync") {
    RequireRecovery({"trainer", 1, "sync.bucket", 2}, options, expected);
  }
}

TEST_CASE("with dropout log-probs are identical, and a killed trainer comes to the same bits") {
  const RigOptions options = Beside({{"model.lora.dropout", "0.3"}});
  const Outcome expected = RunUndisturbed(options);
  RequireLearned(expected, 3);
  for (int64_t step = 1; step <= 3; ++step) {
    const auto& metrics = expected.metrics.at(step);
    REQUIRE(metrics.at("training/rollout_probs_diff_max").get<double>() == 0.0);
    // B begins with zero.
    REQUIRE((metrics.at("actor/ratio_max").get<double>() == 1.0) == (step == 1));
  }
  RequireRecovery({"trainer", 0, "train", 2}, options, expected);
}

TEST_CASE("a run that saves adapters alone goes on from them, and other adapters are refused") {
  ClusterRig rig(WithLora({{"actor.checkpoint.save_lora_only", "true"}}));
  rig.SetPairs(2);
  rig.Set("trainer.total_training_steps", "2");
  REQUIRE(rig.Launch().Wait() == 0);
  std::set<std::string> files;
  const std::string saved = rig.run_dir() + "/checkpoints/step_2";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(saved)) {
    if (entry.is_regular_file()) files.insert(entry.path().filename());
  }
  REQUIRE(files == std::set<std::string>{"adapter_config.json", "adapter_model.safetensors",
                                         "controller_state.json",
                                         "training_state-00000-of-00002.safetensors",
                                         "training_state-00001-of-00002.safetensors"});
  std::filesystem::remove(rig.run_dir() + "/checkpoints/finished");
  rig.Set("trainer.total_training_steps", "3");
  rig.Set("model.lora.rank", "8");
  REQUIRE(rig.Launch().Wait() != 0);
  const std::string refused = rig.Log("launcher") + rig.Log("controller");
  INFO(refused);
  REQUIRE(refused.find("saved with model.lora.rank=4, and the run has 8: set it to 4") !=
          std::string::npos);
  REQUIRE(rig.LeftBehind() == "");
  rig.Set("model.lora.rank", "4");
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher") << rig.Log("controller"));
  REQUIRE(code == 0);
  REQUIRE((rig.Log("launcher") + rig.Log("controller")).find("has no Adam moments") !=
          std::string::npos);
  REQUIRE(rig.Metrics().size() == 3);
  REQUIRE(rig.Metrics().at(3).at("training/rollout_log_probs_identical") == 1.0);
}

TEST_CASE("targets that the model lacks end the start by name") {
  ClusterRig rig(WithLora({{"model.lora.target_modules", "[q_proj,c_attn]"}}));
  REQUIRE(rig.Launch().Wait() != 0);
  const std::string log = rig.Log("launcher") + rig.Log("controller");
  INFO(log);
  REQUIRE(log.find("c_attn") != std::string::npos);
  REQUIRE(rig.LeftBehind() == "");
}

}  // namespace
}  // namespace tandem::testing
