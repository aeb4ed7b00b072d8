// Ways to run that must not change the result, and ways that must work at all.
#include <algorithm>

#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"

namespace tandem::testing {
namespace {

constexpr int kOptionsSteps = 2;

// Two steps with `options`; requires that all log-probs agree.
Outcome RunWithOptions(RigOptions options, int pairs = 1) {
  options.config.emplace("trainer.total_training_steps", std::to_string(kOptionsSteps));
  options.config.emplace("trainer.save_freq", "-1");
  ClusterRig rig(options);
  rig.SetPairs(pairs);
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher"));
  REQUIRE(code == 0);
  REQUIRE(rig.LeftBehind() == "");
  Outcome outcome = OutcomeOf(rig, kOptionsSteps);
  RequireLearned(outcome, kOptionsSteps);
  return outcome;
}

const Outcome& Plain() {
  static const Outcome outcome = RunWithOptions({});
  return outcome;
}

TEST_CASE("sleep, its levels and recomputation do not change a bit") {
  const std::vector<std::map<std::string, std::string>> ways = {
      {{"rollout.free_cache_engine", "true"}, {"rollout.sleep_level", "1"}},
      {{"rollout.free_cache_engine", "true"}, {"rollout.sleep_level", "2"}},
      {{"rollout.free_cache_engine", "false"}},
      {{"model.enable_gradient_checkpointing", "true"}},
      {{"model.enable_gradient_checkpointing", "false"}},
      {{"rollout.load_format", "safetensors"}},
      {{"rollout.enable_prefix_caching", "false"}},
      {{"rollout.free_cache_engine", "true"},
       {"rollout.sleep_level", "2"},
       {"weight_sync.check", "always"},
       {"weight_sync.scramble", "always"}},
      {{"rollout.free_cache_engine", "false"},
       {"weight_sync.check", "always"},
       {"weight_sync.scramble", "always"}},
      {{"weight_sync.scramble", "\"off\""}},
      {{"actor.ppo_max_token_len_per_gpu", "128"}}};
  for (const auto& config : ways) {
    const Outcome outcome = RunWithOptions({.config = config});
    INFO(config.begin()->first << "=" << config.begin()->second);
    REQUIRE(outcome.weights == Plain().weights);
  }
}

TEST_CASE("a KL term of the loss pulls towards the reference") {
  const Outcome outcome =
      RunWithOptions({.config = {{"actor.use_kl_loss", "true"}, {"actor.kl_loss_coef", "0.5"}}});
  REQUIRE(outcome.weights != Plain().weights);
  // The first step compares a policy with itself.
  REQUIRE(outcome.metrics.at(1).at("actor/kl_loss") == 0.0);
  REQUIRE(outcome.metrics.at(2).at("actor/kl_loss") > 0.0);
}

TEST_CASE("a KL penalty in the reward runs") {
  const Outcome outcome = RunWithOptions({.config = {{"algorithm.use_kl_in_reward", "true"}}}, 2);
  REQUIRE(outcome.metrics.size() == kOptionsSteps);
}

TEST_CASE("recomputed old log-probs are those of the rollout") {
  const Outcome outcome = RunWithOptions({.config = {{"actor.old_log_prob", "recompute"}}});
  REQUIRE(outcome.weights == Plain().weights);
}

TEST_CASE("several mini-batches and epochs run") {
  const Outcome outcome = RunWithOptions({.config = {{"actor.ppo_mini_batch_size", "2"},
                                                     {"actor.ppo_epochs", "2"},
                                                     {"actor.shuffle", "true"},
                                                     {"actor.entropy_coeff", "0.01"},
                                                     {"actor.optim.lr_scheduler_type", "cosine"},
                                                     {"actor.optim.lr_warmup_steps", "1"}}},
                                         2);
  REQUIRE(outcome.weights != Plain().weights);
}

TEST_CASE("the float32 reference path runs") {
  RunWithOptions({.config = {{"model.compute_dtype", "float32"}}});
}

TEST_CASE("qwen2 and qwen3 run with identical log-probs") {
  RunWithOptions({.model = {.model_type = "qwen2"}}, 2);
  RunWithOptions({.model = {.model_type = "qwen3", .head_dim = 24}}, 2);
  RunWithOptions({.model = {.model_type = "qwen3", .tie_word_embeddings = false}});
}

TEST_CASE("three ranks with fewer samples than ranks") {
  // No number of rows here is divisible by three; two samples leave one rank without any.
  RunWithOptions({.model = {.intermediate_size = 37},
                  .config = {{"data.train_batch_size", "1"},
                             {"rollout.n", "2"},
                             {"rollout.temperature", "2"},
                             {"rollout.seed", "4"},  // the two are rewarded differently
                             {"rollout.ignore_eos", "true"}}},
                 3);
}

TEST_CASE("ids beyond the tokenizer are never sampled") {
  ClusterRig rig({.model = {.vocab_size = 1024},
                  .config = {{"rollout.ignore_eos", "true"},
                             {"rollout.temperature", "100"},
                             {"data.max_response_length", "32"}}});
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher"));
  REQUIRE(code == 0);
  for (int step = 1; step <= 3; ++step) {
    const auto samples = rig.StoredSamples(step);
    REQUIRE(samples.size() == 16);
    for (const auto& sample : samples) {
      REQUIRE(sample.response_tokens() == 32);
      const auto largest = *std::max_element(sample.tokens.begin(), sample.tokens.end());
      REQUIRE(largest < TinyTokenizerSize());
    }
  }
}

}  // namespace
}  // namespace tandem::testing
