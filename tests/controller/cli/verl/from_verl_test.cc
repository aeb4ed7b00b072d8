// A script as a configuration. The scripts are our own words in the shapes that verl's have.
#include <filesystem>
#include <fstream>
#include <sstream>

#include <catch2/catch.hpp>

#include "common/config/loaded_config.h"
#include "common/formats/files.h"
#include "controller/cli/verl/from_verl_command.h"
#include "tests/common/config/config_file.h"

namespace tandem {
namespace {

absl::StatusOr<std::string> FromVerl(const std::string& script,
                                     std::vector<std::string> arguments = {}) {
  return ConfigFromVerl("run.sh", script,
                        {.environment = [](const std::string&) { return std::nullopt; },
                         .arguments = std::move(arguments),
                         .now = absl::FromUnixSeconds(0)});
}

constexpr char kScript[] =
    "set -x\n"
    "N=${N:-5}\n"
    "python3 -m verl.trainer.main_ppo --config-path=config --config-name='ppo_trainer.yaml' \\\n"
    "    algorithm.adv_estimator=grpo \\\n"
    "    data.train_files=/data/a.jsonl \\\n"
    "    data.train_batch_size=64 \\\n"
    "    +data.apply_chat_template_kwargs.enable_thinking=False \\\n"
    "    actor_rollout_ref.model.path=/models/m \\\n"
    "    actor_rollout_ref.actor.optim.lr=3e-6 \\\n"
    "    actor_rollout_ref.rollout.n=$N \\\n"
    "    actor_rollout_ref.rollout.name=vllm \\\n"
    "    actor_rollout_ref.rollout.tensor_model_parallel_size=2 \\\n"
    "    trainer.logger='[\"console\",\"wandb\"]' \\\n"
    "    trainer.n_gpus_per_node=4 \\\n"
    "    trainer.nnodes=1 $@\n";

TEST_CASE("a script becomes a configuration that says where each key is from") {
  const auto yaml = FromVerl(kScript, {"actor_rollout_ref.rollout.tensor_model_parallel_size=1"});
  INFO(yaml.status().ToString());
  REQUIRE(yaml.ok());
  INFO(*yaml);
  const auto has = [&](const std::string& text) { return yaml->find(text) != std::string::npos; };
  REQUIRE(has("  n: 5 "));
  REQUIRE(has("# run.sh:10: actor_rollout_ref.rollout.n=5\n"));
  REQUIRE(has("# run.sh:7: +data.apply_chat_template_kwargs.enable_thinking=False\n"));
  REQUIRE(has("# run.sh:14: trainer.n_gpus_per_node=4\n"));
  REQUIRE(has("  total_epochs: 30 "));
  REQUIRE(has("# verl's default; Tandem's is 1\n"));
  REQUIRE(has("#   run.sh:11: actor_rollout_ref.rollout.name=vllm: there is one rollout engine"));
  REQUIRE(
      has("#   command line: actor_rollout_ref.rollout.tensor_model_parallel_size=1: a rollout"));
  REQUIRE(has("#   run.sh:13: trainer.logger=wandb: that tracker is not written"));
  REQUIRE(has("#   trainer.max_actor_ckpt_to_keep: 2 here; verl's default keeps all\n"));
  const testing::ConfigFile file(*yaml);
  const auto loaded = LoadConfig(file.path(), {});
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  REQUIRE(loaded->notices.empty());
  REQUIRE(loaded->config.rollout().n() == 5);
  REQUIRE(loaded->config.actor().optim().lr() == 3e-6);
  REQUIRE(loaded->config.cluster().trainers() == 4);
  REQUIRE(loaded->config.cluster().rollouts() == 4);
  REQUIRE(loaded->config.data().apply_chat_template_kwargs() == R"({"enable_thinking":false})");
  REQUIRE(loaded->config.actor().ppo_mini_batch_size() == 256);
  REQUIRE_FALSE(loaded->config.data().filter_overlong_prompts());
}

TEST_CASE("what cannot be honoured in a script is refused with its line") {
  REQUIRE(
      FromVerl(kScript).status().message() ==
      "run.sh:12: actor_rollout_ref.rollout.tensor_model_parallel_size: 2 cannot be honoured: a "
      "rollout is one device; set it to 1; cluster.rollouts says how many there are");
  REQUIRE(std::string(FromVerl("echo\n").status().message()).starts_with("run.sh: no command"));
}

TEST_CASE("a script for images, Megatron or NPUs is refused in one line") {
  const std::string start =
      "python3 -m verl.trainer.main_ppo \\\n  trainer.nnodes=9 rollout.n=x \\\n  ";
  for (const auto& [override, kind] : std::vector<std::pair<std::string, std::string>>{
           {"data.image_key=images", "a script for images"},
           {"actor_rollout_ref.actor.megatron.param_offload=True", "a script for Megatron"},
           {"--config-name=ppo_megatron_trainer", "a script for Megatron"},
           {"actor_rollout_ref.actor.strategy=veomni", "a script for VeOmni"},
           {"+actor_rollout_ref.rollout.engine_kwargs.sglang.attention_backend=\"ascend\"",
            "a script for NPUs"},
           {"trainer.device=npu", "a script for NPUs"}}) {
    const auto refused = FromVerl(start + override + "\n");
    INFO(override);
    REQUIRE_FALSE(refused.ok());
    const std::string message(refused.status().message());
    REQUIRE(message.starts_with("run.sh:"));
    REQUIRE(message.find(kind + " is not started here") != std::string::npos);
    REQUIRE(message.find('\n') == std::string::npos);
  }
  REQUIRE(std::string(FromVerl(start + "--config-name gsm8k_multiturn\n").status().message())
              .find("only ppo_trainer") != std::string::npos);
}

TEST_CASE("what the user gives to a script that does not pass it on is taken or refused by name") {
  const std::string script =
      "N=${1:-2}\npython3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.n=$N \\\n"
      "  data.image_key=images\n";
  const auto yaml = FromVerl(script, {"7", "~data.image_key", "data.train_batch_size=32"});
  INFO(yaml.status().ToString());
  REQUIRE(yaml.ok());
  REQUIRE(yaml->find("  n: 7 ") != std::string::npos);
  REQUIRE(yaml->find("# command line: data.train_batch_size=32\n") != std::string::npos);
  REQUIRE(FromVerl(script, {"7", "fast"}).status().message() ==
          "command line: fast: the script run.sh does not read this argument, and it is no "
          "override, which is written key=value or ~key: leave it out");
}

TEST_CASE("overrides alone are read from standard input, and written to a file") {
  const testing::ConfigFile folder("");
  const std::string output = folder.dir() + "/out.yaml";
  std::istringstream in(
      "# mine\nactor_rollout_ref.rollout.n=3 \\\n\nalgorithm.adv_estimator=rloo\n");
  std::ostringstream out;
  REQUIRE(FromVerlCommand({.output = output}, in, out).ok());
  REQUIRE(out.str() == "wrote " + output + "\n");
  const auto loaded = LoadConfig(output, {});
  REQUIRE(loaded.ok());
  REQUIRE(loaded->config.rollout().n() == 3);
  REQUIRE(loaded->config.algorithm().adv_estimator() == "rloo");
  const std::string before = ReadWholeFile(output).value();
  std::istringstream wrong("actor_rollout_ref.rollout.n=many\n"), again("rollout.n=4\n");
  REQUIRE_FALSE(FromVerlCommand({.output = output}, wrong, out).ok());
  REQUIRE(ReadWholeFile(output).value() == before);
  out.str("");
  REQUIRE(FromVerlCommand({.output = output}, again, out).ok());
  REQUIRE(out.str() == "wrote " + output + ", in place of the file that was there\n");
  std::istringstream once_more("rollout.n=4\n");
  const absl::Status folder_refused = FromVerlCommand({.output = folder.dir()}, once_more, out);
  REQUIRE(std::string(folder_refused.message()).find("is not a regular file") != std::string::npos);
  REQUIRE(FromVerlCommand({.script = "/nonexistent.sh"}, in, out).code() ==
          absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tandem
