#include <filesystem>
#include <limits>
#include <map>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "common/config/check.h"
#include "common/config/loaded_config.h"
#include "common/config/schema.h"
#include "common/types/sample.h"
#include "tests/common/config/config_file.h"

namespace tandem {
namespace {

using testing::ConfigFile;

std::string ErrorOf(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  const ConfigFile file(yaml);
  const auto loaded = LoadConfig(file.path(), overrides);
  REQUIRE_FALSE(loaded.ok());
  REQUIRE(loaded.status().code() == absl::StatusCode::kInvalidArgument);
  std::string message(loaded.status().message());
  for (size_t at; (at = message.find(file.path())) != std::string::npos;) {
    message.replace(at, file.path().size(), "FILE");
  }
  return message;
}

v1::Config LoadYaml(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  const ConfigFile file(yaml);
  const auto loaded = LoadConfig(file.path(), overrides);
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  return loaded->config;
}

TEST_CASE("a file and overrides set values, and the rest are defaults") {
  const v1::Config config =
      LoadYaml("rollout:\n  n: 4\n  val_kwargs: {n: 2}\nactor.grad_clip: 0.5\n",
               {"rollout.val_kwargs.n=3", "actor.optim.lr=3e-5"});
  REQUIRE(config.rollout().n() == 4);
  REQUIRE(config.rollout().val_kwargs().n() == 3);
  REQUIRE(config.actor().grad_clip() == 0.5);
  REQUIRE(config.actor().optim().lr() == 3e-5);
  REQUIRE(config.actor().clip_ratio_c() == 3.0);
  REQUIRE(config.trainer().val_before_train());
}

TEST_CASE("an unknown key is an error with file, line, key and the nearest key") {
  REQUIRE(ErrorOf("rollout:\n  n: 4\n  max_num_seq: 2\n") ==
          "FILE:3: rollout.max_num_seq: unknown key; did you mean rollout.max_num_seqs?");
  REQUIRE(ErrorOf("", {"trainer.lr=1"}) ==
          "--set: trainer.lr: unknown key; did you mean actor.optim.lr?");
  REQUIRE(ErrorOf("xyzzy: {n: 1}\n") ==
          "FILE:1: xyzzy: unknown key; docs/reference/config.md has all keys");
  REQUIRE(ErrorOf("actor_rollout_ref: {rollout: {m: 1}}\n") ==
          "FILE:1: actor_rollout_ref.rollout.m: unknown key; did you mean rollout.n?");
}

TEST_CASE("every problem of a config is told at once") {
  REQUIRE(ErrorOf("rollout:\n  n: many\n  top_p: 0\n", {"trainer.logger=[console, papyrus]"}) ==
          "FILE:2: rollout.n: expects a whole number, not \"many\"\n"
          "FILE:3: rollout.top_p: 0 is out of range: above 0 and at most 1\n"
          "--set: trainer.logger: \"papyrus\" is not one of: console, jsonl, tensorboard");
}

TEST_CASE("wrong types, ranges and choices are refused") {
  REQUIRE(ErrorOf("rollout.n: 1.5\n") == "FILE:1: rollout.n: expects a whole number, not \"1.5\"");
  REQUIRE(ErrorOf("rollout.n: [1, 2]\n") ==
          "FILE:1: rollout.n: expects a whole number, not a list");
  REQUIRE(ErrorOf("rollout: 3\n") == "FILE:1: rollout: is a section: it holds keys, not a value");
  REQUIRE(ErrorOf("data.shuffle: maybe\n") ==
          "FILE:1: data.shuffle: expects true or false, not \"maybe\"");
  REQUIRE(
      ErrorOf("actor.optim.lr: fast\n") ==
      "FILE:1: actor.optim.lr: expects a number, not \"fast\": digits, maybe with a point and an "
      "exponent, such as 0.5 or 1e-6");
  REQUIRE(
      ErrorOf("actor.optim.lr: nan\n") ==
      "FILE:1: actor.optim.lr: expects a number, not \"nan\": digits, maybe with a point and an "
      "exponent, such as 0.5 or 1e-6");
  REQUIRE(ErrorOf("rollout.n: 0\n") ==
          "FILE:1: rollout.n: 0 is out of range: at least 1 and at most 4096");
  REQUIRE(ErrorOf("rollout.sleep_level: 3\n") ==
          "FILE:1: rollout.sleep_level: 3 is out of range: at least 1 and at most 2");
  REQUIRE(ErrorOf("", {"trainer.total_training_steps=99999999999999999999"}) ==
          "--set: trainer.total_training_steps: 99999999999999999999 is out of range: at least 0 "
          "and at most 1000000000");
  REQUIRE(ErrorOf("actor.loss_agg_mode: mean\n") ==
          "FILE:1: actor.loss_agg_mode: \"mean\" is not one of: token-mean, token-sum, "
          "seq-mean-token-sum, seq-mean-token-mean, seq-mean-token-sum-norm");
  REQUIRE(ErrorOf("actor.kl_loss_type: full\n").find("low_var_kl+, k3+") != std::string::npos);
  REQUIRE(ErrorOf("actor.policy_loss.kl_cov_ratio: 0\n").find("above 0") != std::string::npos);
  REQUIRE(ErrorOf("algorithm.kl_ctrl.type: linear\n") ==
          "FILE:1: algorithm.kl_ctrl.type: \"linear\" is not one of: fixed, adaptive");
  REQUIRE(ErrorOf("reward.timeout_seconds: 0\n") ==
          "FILE:1: reward.timeout_seconds: 0 is out of range: above 0");
  REQUIRE(ErrorOf("actor.optim.eps: 0\n").find("above 0") != std::string::npos);
  REQUIRE(ErrorOf("algorithm.kl_penalty: full\n").find("is not one of: kl, ") != std::string::npos);
  REQUIRE(ErrorOf("actor.optim.lr_scheduler_type: linear\n") ==
          "FILE:1: actor.optim.lr_scheduler_type: \"linear\" is not one of: constant, cosine, wsd");
  REQUIRE(ErrorOf("actor.optim.lr_warmup_steps: -2\n").find("at least -1") != std::string::npos);
  REQUIRE(ErrorOf("actor.optim.lr_warmup_steps_ratio: 1.5\n").find("at most 1") !=
          std::string::npos);
  REQUIRE(ErrorOf("actor.optim.stable_ratio: -0.1\n").find("at least 0") != std::string::npos);
  REQUIRE(ErrorOf("actor.optim.num_cycles: 0\n").find("above 0") != std::string::npos);
  REQUIRE(ErrorOf("actor.max_skipped_steps: -1\n").find("at least 0") != std::string::npos);
  REQUIRE(ErrorOf("trainer.save_batch_freq: -2\n").find("at least -1") != std::string::npos);
  REQUIRE(ErrorOf("weight_sync.bucket_mb: 0\n").find("does not match") != std::string::npos);
  REQUIRE(ErrorOf("", {"rollout.n"}) == "--set: rollout.n: an override is written key=value");
}

// Sums and products of numbers must stay numbers: UndefinedBehaviorSanitizer watches this.
TEST_CASE("every whole number at its largest adds up, and beyond it is refused by key") {
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  for (const KeySpec& spec : ConfigSchema()) {
    if (TypeName(spec) != "whole number" || spec.key.find("[]") != std::string::npos) continue;
    INFO(spec.key);
    const int64_t limit = spec.info.has_max() ? static_cast<int64_t>(spec.info.max()) : kLargest;
    auto loaded = LoadConfig("", {fmt::format("{}={}", spec.key, limit)});
    REQUIRE(loaded.ok());
    (void)CheckConfigValues(*loaded);  // either answer, but no overflow
    REQUIRE(TrainLimits(loaded->config).samples > 0);
    REQUIRE(ScoreLimits(loaded->config).samples > 0);
    REQUIRE(ProbeLimits(loaded->config).samples > 0);
    if (!spec.info.has_max()) continue;
    const std::string error = ErrorOf("", {fmt::format("{}={}", spec.key, kLargest)});
    REQUIRE(error.find(spec.key) != std::string::npos);
    REQUIRE(error.find("at most") != std::string::npos);
  }
  REQUIRE(FindKey("rollout.n")->info.max() == kMaxGroupSamples);
  REQUIRE(FindKey("rollout.val_kwargs.n")->info.max() == kMaxGroupSamples);
}

TEST_CASE("a file that is not YAML, no mapping or not there is refused with its name") {
  REQUIRE(ErrorOf("rollout: {n: 4\n").find("FILE:2: this is not YAML") == 0);
  REQUIRE(ErrorOf("- a\n- b\n") == "FILE:1: a config file is a mapping of sections");
  const auto missing = LoadConfig("/nonexistent/run.yaml", {});
  REQUIRE(missing.status().code() == absl::StatusCode::kNotFound);
  REQUIRE(std::string(missing.status().message()) ==
          "config file /nonexistent/run.yaml does not exist");
}

TEST_CASE("a file goes on from its base, key by key, wherever it is named from") {
  const ConfigFile base("rollout:\n  n: 4\n  temperature: 0.5\nreward:\n  function: exact\n");
  const ConfigFile file("base: ../" + std::filesystem::path(base.dir()).filename().string() +
                        "/run.yaml\nrollout:\n  n: 6\nactor.grad_clip: 0.5\n");
  const auto loaded = LoadConfig(file.path(), {"actor.grad_clip=0.25"});
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  REQUIRE(loaded->config.rollout().n() == 6);
  REQUIRE(loaded->config.rollout().temperature() == 0.5);
  REQUIRE(loaded->config.reward().function() == "exact");
  REQUIRE(loaded->config.actor().grad_clip() == 0.25);
  REQUIRE(loaded->origins.at("rollout.n") == file.path() + ":3");
  REQUIRE(loaded->origins.at("rollout.temperature").ends_with("/run.yaml:3"));
  REQUIRE(loaded->origins.at("rollout.temperature") != file.path() + ":3");
}

TEST_CASE("null gives a key its default again, and a section all of its keys, also a base's") {
  const ConfigFile base(
      "rollout: {n: 4, val_kwargs: {n: 3, do_sample: true}}\nreward: {function: exact}\n");
  const auto load = [&](const std::string& text) {
    const ConfigFile file("base: " + base.path() + "\n" + text);
    const auto loaded = LoadConfig(file.path(), {});
    INFO(loaded.status().ToString());
    REQUIRE(loaded.ok());
    REQUIRE(loaded->config.reward().function() == "exact");
    return *loaded;
  };
  const LoadedConfig key = load("rollout: {n: null}\n");
  REQUIRE(key.config.rollout().n() == DefaultConfig().rollout().n());
  REQUIRE(key.config.rollout().val_kwargs().n() == 3);
  const LoadedConfig section = load("rollout: {val_kwargs: null}\n");
  REQUIRE(section.config.rollout().n() == 4);
  REQUIRE(section.config.rollout().val_kwargs().n() == 1);
  REQUIRE_FALSE(section.config.rollout().val_kwargs().do_sample());
  REQUIRE_FALSE(section.origins.contains("rollout.val_kwargs.n"));
}

TEST_CASE("a base that is not there, no name or a circle is refused") {
  REQUIRE(ErrorOf("rollout:\n  n: 4\nbase: [a, b]\n").find("FILE:3: base: names one other") == 0);
  REQUIRE(ErrorOf("base: ''\n").find("FILE:1: base: names one other") == 0);
  REQUIRE(ErrorOf("base: run.yaml\n").find("form a cycle through these files: FILE") !=
          std::string::npos);
  REQUIRE(ErrorOf("rollout.base: 3\n").find("unknown key") != std::string::npos);
  REQUIRE(ErrorOf("rollout: {n: 4}\nbase: run.yaml\n").find("FILE:2: base: ") == 0);
  const ConfigFile file("# a file\nbase: nowhere.yaml\n");
  const absl::Status missing = LoadConfig(file.path(), {}).status();
  REQUIRE(missing.code() == absl::StatusCode::kNotFound);
  REQUIRE(missing.message().find(file.path() + ":2: base: config file ") == 0);
  REQUIRE(missing.message().find("nowhere.yaml does not exist") != std::string::npos);
  const ConfigFile list("- a\n- b\n"), no_yaml("a: [\n");
  REQUIRE(ErrorOf("\nbase: " + list.path() + "\n") ==
          "FILE:2: base: " + list.path() + ":1: a config file is a mapping of sections");
  REQUIRE(ErrorOf("\nbase: " + no_yaml.path() + "\n").find("FILE:2: base: " + no_yaml.path()) == 0);
}

TEST_CASE("a second base in a file is refused with both places") {
  const ConfigFile base("rollout: {n: 4}\n");
  REQUIRE(ErrorOf("base: " + base.path() + "\ntrainer: {seed: 2}\nbase: " + base.path() + "\n") ==
          "FILE:3: base: a file is based on one other, and FILE:1: base names one already");
}

TEST_CASE("a key set twice in one file is refused, also through an alias") {
  REQUIRE(ErrorOf("rollout.n: 4\nactor_rollout_ref.rollout.n: 8\n") ==
          "FILE:2: actor_rollout_ref.rollout.n: rollout.n is already set at FILE:1, as rollout.n: "
          "leave one out");
}

TEST_CASE("lists are replaced whole, take a single value, and keep their default otherwise") {
  const v1::Config config = LoadYaml("data.train_files: /a.jsonl\ntrainer.logger: []\n",
                                     {"rollout.stop=[a, \"b c\"]", "actor.optim.betas=[0.8, 0.9]"});
  REQUIRE(config.data().train_files_size() == 1);
  REQUIRE(config.data().train_files(0) == "/a.jsonl");
  REQUIRE(config.trainer().logger_size() == 0);
  REQUIRE(config.rollout().stop_size() == 2);
  REQUIRE(config.rollout().stop(1) == "b c");
  REQUIRE(config.actor().optim().betas(0) == 0.8);
  REQUIRE(config.actor().checkpoint().save_contents_size() == 2);
}

TEST_CASE("reward terms are mappings with name, weight and JSON arguments") {
  const v1::Config config = LoadYaml(
      "reward:\n  terms:\n    - {name: length, weight: -0.1, args: {max: 8, unit: tokens}}\n"
      "    - name: format\n");
  REQUIRE(config.reward().terms_size() == 2);
  REQUIRE(config.reward().terms(0).weight() == -0.1);
  REQUIRE(config.reward().terms(0).args() == R"({"max":8,"unit":"tokens"})");
  REQUIRE(config.reward().terms(1).weight() == 1);
  REQUIRE(ErrorOf("reward.terms: [{weight: 1}]\n") == "FILE:1: reward.terms: an entry lacks name");
  REQUIRE(ErrorOf("reward.terms: [{nam: x}]\n") ==
          "FILE:1: reward.terms: nam is unknown in an entry; did you mean reward.terms[].name?");
  REQUIRE(ErrorOf("data.apply_chat_template_kwargs: \"{\"\n").find("expects a JSON object") !=
          std::string::npos);
}

TEST_CASE("values that follow from others are resolved") {
  const v1::Config config = LoadYaml(
      "data: {max_prompt_length: 10, max_response_length: 6, train_batch_size: 12}\n"
      "actor.clip_ratio: 0.1\nactor.clip_ratio_high: 0.28\ncluster.run_dir: /r\n");
  REQUIRE(config.rollout().max_model_len() == 16);
  REQUIRE(config.actor().ppo_mini_batch_size() == 12);
  REQUIRE(config.actor().clip_ratio_low() == 0.1);
  REQUIRE(config.actor().clip_ratio_high() == 0.28);
  REQUIRE(config.cluster().listen() == "unix:/r/controller.sock");
  REQUIRE(config.trainer().default_local_dir() == "/r/checkpoints");
  REQUIRE(BucketBytes(config, false) == 4 << 20);
  REQUIRE(BucketBytes(LoadYaml("weight_sync.bucket_mb: 64\n"), true) == 64 << 20);
}

TEST_CASE("a sync has no slots where one trainer's rounded weights can be read") {
  const auto direct = [](const std::string& overrides) {
    return SyncIsDirect(LoadYaml("cluster.trainers: 1\n" + overrides));
  };
  REQUIRE(direct(""));
  REQUIRE(direct("trainer.device: cuda\n"));
  REQUIRE(direct("trainer.device: cuda\nweight_sync.transport: ipc\n"));
  REQUIRE(direct("weight_sync.transport: shm\n"));
  // Pinned memory of the host holds no shard.
  REQUIRE_FALSE(direct("trainer.device: cuda\nweight_sync.transport: shm\n"));
  REQUIRE_FALSE(direct("model.compute_dtype: float32\n"));
  REQUIRE_FALSE(SyncIsDirect(LoadYaml("cluster.trainers: 2\n")));
  REQUIRE_FALSE(SyncIsDirect(LoadYaml("cluster.trainers: 2\ntrainer.device: cuda\n")));
}

TEST_CASE("relative paths start at the current directory, and null restores a default") {
  const v1::Config config =
      LoadYaml("model.path: models/x/../y\nrollout.n: 4\n", {"rollout.n=null", "data.seed=~"});
  REQUIRE(config.model().path() == (std::filesystem::current_path() / "models/y").string());
  REQUIRE(config.rollout().n() == 8);
  REQUIRE(config.data().seed() == 1);
}

}  // namespace
}  // namespace tandem
