// Keys that verl has: read under their names, accepted without effect, or refused.
#include <fstream>
#include <map>
#include <sstream>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "common/config/config.h"
#include "common/config/loaded_config.h"
#include "common/config/schema.h"
#include "common/config/verl/hydra_value.h"
#include "common/config/verl/known_keys.h"
#include "common/config/verl/verl_rules.h"
#include "tests/common/config/config_file.h"

namespace tandem {
namespace {

using testing::ConfigFile;

LoadedConfig LoadSet(const std::vector<std::string>& overrides) {
  const auto loaded = LoadConfig("", overrides);
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  return *loaded;
}

std::string Refusal(const std::vector<std::string>& overrides) {
  const auto loaded = LoadConfig("", overrides);
  REQUIRE_FALSE(loaded.ok());
  return std::string(loaded.status().message());
}

TEST_CASE("verl's spellings are accepted and reported in one line") {
  const ConfigFile file(
      "actor_rollout_ref:\n  rollout: {n: 4, free_cache_engine: True}\n"
      "  actor: {optim: {lr: 2e-6, clip_grad: 0.5}}\n  model: {path: /m}\n");
  const auto loaded = LoadConfig(file.path(), {"actor_rollout_ref.rollout.response_length=9"});
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  REQUIRE(loaded->config.rollout().n() == 4);
  REQUIRE(loaded->config.rollout().free_cache_engine() == "true");
  REQUIRE(loaded->config.actor().optim().lr() == 2e-6);
  REQUIRE(loaded->config.actor().grad_clip() == 0.5);
  REQUIRE(loaded->config.model().path() == "/m");
  REQUIRE(loaded->config.data().max_response_length() == 9);
  REQUIRE(loaded->notices.size() == 1);
  REQUIRE(loaded->notices[0].starts_with(
      "verl's names of keys: actor_rollout_ref.rollout.n is rollout.n, "));
  REQUIRE(loaded->notices[0].ends_with(
      ", actor_rollout_ref.rollout.response_length is data.max_response_length"));
}

TEST_CASE("verl's keys that ask for nothing else are accepted and listed once") {
  const LoadedConfig loaded = LoadSet(
      {"trainer.val_only=False", "actor_rollout_ref.rollout.name=vllm", "trainer.critic_warmup=0",
       "actor_rollout_ref.model.use_remove_padding=True", "critic.optim.lr=1e-5",
       "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
       "actor_rollout_ref.actor.strategy=fsdp2", "actor_rollout_ref.actor.use_dynamic_bsz=True",
       "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=160", "hydra.run.dir=/tmp/x",
       "actor_rollout_ref.rollout.engine_kwargs.vllm.seed=3", "reward_model.reward_manager=dapo"});
  REQUIRE(loaded.notices.size() == 1);
  REQUIRE(loaded.notices[0] ==
          "12 verl keys have no effect here: trainer.val_only, actor_rollout_ref.rollout.name, "
          "trainer.critic_warmup, actor_rollout_ref.model.use_remove_padding, critic.optim.lr, "
          "actor_rollout_ref.rollout.tensor_model_parallel_size, actor_rollout_ref.actor.strategy, "
          "actor_rollout_ref.actor.use_dynamic_bsz, "
          "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu, hydra.run.dir, "
          "actor_rollout_ref.rollout.engine_kwargs.vllm.seed, reward_model.reward_manager; "
          "`tandemctl config explain KEY` says why");
  REQUIRE(loaded.origins.empty());
}

TEST_CASE("a section of verl's in a file is accepted key by key") {
  const ConfigFile file("critic:\n  optim: {lr: 1}\ntransfer_queue: {enable: False}\ncritic2: 1\n");
  const auto loaded = LoadConfig(file.path(), {});
  REQUIRE(loaded.status().message() ==
          file.path() + ":4: critic2: unknown key; docs/reference/config.md has all keys");
  const ConfigFile without("critic:\n  optim: {lr: 1}\ntransfer_queue: {enable: False}\n");
  const auto accepted = LoadConfig(without.path(), {});
  REQUIRE(accepted.ok());
  REQUIRE(accepted->without_effect.size() == 2);
  REQUIRE(accepted->without_effect[0].key == "critic.optim.lr");
  REQUIRE(accepted->without_effect[0].place == without.path() + ":2");
  REQUIRE(accepted->without_effect[0].reason.starts_with("there is no critic"));
}

TEST_CASE("verl's keys that would change the result are refused by name with reason and remedy") {
  REQUIRE(Refusal({"actor_rollout_ref.rollout.tensor_model_parallel_size=2"}) ==
          "--set: actor_rollout_ref.rollout.tensor_model_parallel_size: 2 cannot be honoured: a "
          "rollout is one device; set it to 1; cluster.rollouts says how many there are");
  const std::map<std::string, std::string> hints = {
      {"trainer.critic_warmup=5", "does not train the policy for so many steps"},
      {"trainer.val_only=true", "tandemctl evaluate"},
      {"actor_rollout_ref.actor.strategy=megatron", "use verl's FSDP script of the model"},
      {"actor_rollout_ref.rollout.multi_turn.enable=True", "without tools"},
      {"actor_rollout_ref.rollout.agent.default_agent_loop=tool_agent", "without tools"},
      {"data.image_key=images", "images, videos and audio are not read"},
      {"custom_reward_function.path=a.py", "reward.function=remote"},
      {"reward_model.enable=True", "reward.service_address"},
      {"actor_rollout_ref.rollout.quantization=fp8", "weights have model.compute_dtype"},
      {"actor_rollout_ref.actor.ulysses_sequence_parallel_size=4", "no sequence parallelism"},
      {"async_training.partial_rollout=true", "rollout.partial.max_tokens_per_round"},
      {"async_training.staleness_threshold=0.5", "rollout.partial.max_staleness"},
      {"async_training.compute_prox_log_prob=true", "actor.old_log_prob=recompute"},
      {"async_training.something_new=1", "rollout.partial, with rollout.partial.overlap"},
      {"rollout.total_rollout_steps=9", "trainer.total_training_steps"},
      {"rollout.over_sample_rate=0.1", "rollout.partial.until_groups"},
      {"model.lora.type=dora", "plain LoRA"},
      {"model.mtp.enable=true", "no speculative decoding"},
      {"global_profiler.tool=npu", "there are no NPUs"},
      {"trainer.v1.trainer_mode=separate_async", "rollout.partial.overlap"},
      {"actor_rollout_ref.actor.optim.optimizer=SGD", "the optimizer is AdamW"}};
  for (const auto& [override, hint] : hints) {
    const std::string message = Refusal({override});
    INFO(message);
    const std::string key = override.substr(0, override.find('='));
    REQUIRE(message.starts_with("--set: " + key + ": "));
    REQUIRE(message.find(" cannot be honoured: ") != std::string::npos);
    REQUIRE(message.find(hint) != std::string::npos);
  }
}

TEST_CASE("arguments of an engine that change the result are refused, and unknown ones named") {
  const std::string engine = "actor_rollout_ref.rollout.engine_kwargs.";
  for (const std::string override :
       {"vllm.hf_overrides={rope_theta:1}", "vllm.logits_processors=[a.B]",
        "vllm.generation_config=auto", "vllm.override_generation_config.top_k=20",
        "vllm.dtype=float16", "vllm.speculative_config.method=ngram", "sglang.dtype=float16",
        "sglang.json_model_override_args='{}x'"}) {
    const std::string message = Refusal({"+" + engine + override});
    INFO(message);
    REQUIRE(message.starts_with("--set: " + engine));
    REQUIRE(message.find("cannot be honoured: ") != std::string::npos);
  }
  REQUIRE(Refusal({"+" + engine + "vllm.hf_override=x"})
              .ends_with("unknown key; did you mean rollout.engine_kwargs.vllm.hf_overrides?"));
  REQUIRE(Refusal({"+" + engine + "vllm.never_heard_of=1"})
              .ends_with("unknown key; it may change the result: leave it out; "
                         "docs/reference/verl.md has the known keys"));
  REQUIRE(LoadSet({"+" + engine + "vllm.compilation_config={cudagraph_mode:FULL,level:3}",
                   engine + "sglang={}", engine + "vllm=null",
                   "+" + engine + "trtllm.batch_wait_timeout_iters=32"})
              .without_effect.size() == 4);
}

TEST_CASE("a mistyped key of FSDP is unknown, and a precision that is not computed refused") {
  const std::string actor = "actor_rollout_ref.actor.fsdp_config.";
  REQUIRE(Refusal({actor + "reshard_after_foward=True"})
              .ends_with("unknown key; did you mean actor.fsdp_config.reshard_after_forward?"));
  REQUIRE(Refusal({"actor_rollout_ref.ref.fsdp_config.fsdp_sise=2"})
              .ends_with("unknown key; did you mean ref.fsdp_config.fsdp_size?"));
  REQUIRE(Refusal({actor + "parm_offload=True"})
              .ends_with("unknown key; did you mean actor.fsdp_config.param_offload?"));
  REQUIRE(Refusal({"+" + actor + "mixed_precision.param_dtype=fp32"})
              .find("cannot be honoured: model.compute_dtype") != std::string::npos);
  REQUIRE(Refusal({"+" + actor + "mixed_precision={param_dtype: bf16, reduce_dtyp: fp32}"})
              .find("mixed_precision.reduce_dtype?") != std::string::npos);
  REQUIRE(LoadSet({actor + "fsdp_size=-1", actor + "wrap_policy.transformer_layer_cls_to_wrap=[A]",
                   "+" + actor + "mixed_precision.reduce_dtype=fp32",
                   "actor_rollout_ref.ref.fsdp_config.forward_prefetch=True"})
              .without_effect.size() == 4);
}

TEST_CASE("all keys of another engine are refused in one line") {
  REQUIRE(
      Refusal({"actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2",
               "+actor_rollout_ref.actor.megatron.override_transformer_config.x=1",
               "actor_rollout_ref.actor.megatron.param_offload=True"}) ==
      "--set: actor_rollout_ref.actor.megatron.tensor_model_parallel_size: 2 cannot be honoured: "
      "there is no Megatron; weights are sharded as FSDP shards them; leave the section out, or "
      "use verl's FSDP script of the model (as 2 more of actor.megatron)");
}

TEST_CASE("the devices of a node are those of trainers and rollouts") {
  const LoadedConfig loaded = LoadSet({"trainer.n_gpus_per_node=4", "trainer.nnodes=1"});
  REQUIRE(loaded.config.cluster().trainers() == 4);
  REQUIRE(loaded.config.cluster().rollouts() == 4);
  REQUIRE(loaded.notices.empty());
  const LoadedConfig apart = LoadSet(
      {"actor_rollout_ref.hybrid_engine=False", "trainer.n_gpus_per_node=4",
       "actor_rollout_ref.rollout.nnodes=1", "actor_rollout_ref.rollout.n_gpus_per_node=2"});
  REQUIRE_FALSE(apart.config.cluster().hybrid_engine());
  REQUIRE(apart.config.cluster().trainers() == 4);
  REQUIRE(apart.config.cluster().rollouts() == 2);
  REQUIRE(apart.without_effect.empty());
}

TEST_CASE("the last override of a key counts, whatever an earlier one asks for") {
  const LoadedConfig loaded =
      LoadSet({"actor_rollout_ref.rollout.tensor_model_parallel_size=2", "rollout.n=many",
               "rollout.n=4", "rollout.tensor_model_parallel_size=1", "trainer.n_gpus_per_node=8",
               "trainer.n_gpus_per_node=2"});
  REQUIRE(loaded.config.rollout().n() == 4);
  REQUIRE(loaded.config.cluster().trainers() == 2);
  REQUIRE(loaded.config.cluster().rollouts() == 2);
  REQUIRE(loaded.without_effect.size() == 1);
  REQUIRE(loaded.without_effect[0].value == "1");
}

TEST_CASE("two names of a key may give it the same value in overrides") {
  const LoadedConfig loaded =
      LoadSet({"data.max_response_length=64", "actor_rollout_ref.rollout.response_length=64"});
  REQUIRE(loaded.config.data().max_response_length() == 64);
  REQUIRE(
      Refusal({"data.max_response_length=64", "rollout.response_length=65"}).find("already set") !=
      std::string::npos);
}

TEST_CASE("values that only verl has are left out or replaced, and listed") {
  const LoadedConfig loaded =
      LoadSet({"trainer.logger=[\"console\",\"wandb\"]",
               "actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra]",
               "actor_rollout_ref.rollout.load_format=dummy_dtensor"});
  REQUIRE(loaded.config.trainer().logger_size() == 1);
  REQUIRE(loaded.config.trainer().logger(0) == "console");
  REQUIRE(loaded.config.actor().checkpoint().save_contents_size() == 1);
  REQUIRE(loaded.config.rollout().load_format() == "dummy");
  REQUIRE(loaded.notices.back().find("trainer.logger=wandb") != std::string::npos);
  REQUIRE(LoadSet({"trainer.logger=wandb"}).config.trainer().logger_size() == 0);
}

TEST_CASE("+, ++ and ~ are taken as Hydra takes them") {
  REQUIRE(LoadSet({"+rollout.n=3"}).config.rollout().n() == 3);
  REQUIRE(LoadSet({"rollout.n=2", "++rollout.n=3"}).config.rollout().n() == 3);
  REQUIRE(LoadSet({"rollout.n=3", "~rollout.n"}).config.rollout().n() == 8);
  REQUIRE(LoadSet({"rollout.n=3", "~rollout.n=3"}).origins.empty());
  REQUIRE(LoadSet({"~critic", "~transfer_queue.enable"}).notices.empty());
  REQUIRE(Refusal({"+++rollout.n=3"}) == "--set: +++rollout.n=3: an override is written key=value");
  REQUIRE(Refusal({"+rollout.n"}).ends_with("an override is written key=value"));
  REQUIRE(Refusal({"actor@actor_rollout_ref.actor=megatron_actor"}).find("config groups") !=
          std::string::npos);
}

TEST_CASE("an entry of a JSON object is a key of its own, as Hydra writes it") {
  const LoadedConfig loaded =
      LoadSet({"+data.apply_chat_template_kwargs.enable_thinking=False",
               "+data.apply_chat_template_kwargs.inner.effort=low",
               "+data.apply_chat_template_kwargs.gone=1", "~data.apply_chat_template_kwargs.gone"});
  REQUIRE(loaded.config.data().apply_chat_template_kwargs() ==
          R"({"enable_thinking":false,"inner":{"effort":"low"}})");
  REQUIRE(loaded.origins.contains("data.apply_chat_template_kwargs"));
  REQUIRE(Refusal({"data.apply_chat_template_kwargs.a=1", "data.apply_chat_template_kwargs.a.b=1"})
              .find("is no entry") != std::string::npos);
}

TEST_CASE("lists and mappings of Hydra's grammar are read") {
  const std::map<std::string, std::string> values = {{"{a:1,b:[x,y]}", R"({"a": 1, "b": [x, y]})"},
                                                     {"{a: {b:'c d'}}", R"({"a": {"b": "c d"}})"},
                                                     {"[ ]", "[]"},
                                                     {"a\\,b", R"("a,b")"},
                                                     {"'it\\'s'", R"("it's")"},
                                                     {"\"a\\nb\"", R"("a\\nb")"},
                                                     {"int(3.7)", "3"},
                                                     {"str(7)", R"("7")"},
                                                     {"{'k':null}", R"({"k": null})"}};
  for (const auto& [hydra, yaml] : values) {
    const auto text = HydraValueToYaml(hydra);
    INFO(hydra << ": " << text.status().ToString());
    REQUIRE(text.ok());
    REQUIRE(*text == yaml);
  }
  for (const std::string& bad :
       {std::string("[1,2"), std::string("{a}"), std::string("{a:1"), std::string("'x"),
        std::string("choice(1,2)"), std::string("a)"), std::string(200, '[')}) {
    INFO(bad);
    REQUIRE_FALSE(HydraValueToYaml(bad).ok());
  }
  REQUIRE(LoadSet({"reward.args={pattern:x,n:[1,2]}"}).config.reward().args() ==
          R"({"pattern":"x","n":[1,2]})");
  REQUIRE(LoadSet({"rollout.n=int(4)"}).config.rollout().n() == 4);
}

TEST_CASE("an interpolation is refused, not taken as text") {
  REQUIRE(Refusal({"trainer.experiment_name=${trainer.project_name}"}) ==
          "--set: trainer.experiment_name: ${...} is not resolved here: write the value that it "
          "stands for");
}

TEST_CASE("a key that only verl has is explained") {
  REQUIRE(*ExplainConfig("actor_rollout_ref.rollout.name") ==
          "actor_rollout_ref.rollout.name\n  of        verl\n  default   `???`\n"
          "  here      no effect\n  why       there is one rollout engine, Tandem's own\n");
  const std::string parallel = *ExplainConfig("rollout.tensor_model_parallel_size");
  REQUIRE(parallel.find("no effect as `1`, else refused") != std::string::npos);
  REQUIRE(parallel.find("otherwise: set it to 1") != std::string::npos);
  REQUIRE_FALSE(ExplainConfig("trainer.nonsense_of_nobody").ok());
}

TEST_CASE(
    "no rule of verl's is about a key that the schema has, and each that refuses has a remedy") {
  REQUIRE(VerlRules().size() > 200);
  for (const VerlRule& rule : VerlRules()) {
    INFO(rule.key);
    const std::string key(rule.key);
    REQUIRE(CanonicalKey(key) == key);
    const KeySpec* spec = FindKey(key);
    REQUIRE((spec == nullptr || spec->section));
    REQUIRE(rule.remedy.empty() == (rule.accepts == "*"));
    REQUIRE_FALSE(rule.reason.empty());
    REQUIRE(FindVerlRule(rule.key) == &rule);
  }
}

TEST_CASE("every known key of verl's is mapped, without effect or refused") {
  REQUIRE(KnownVerlKeys().size() > 900);
  for (const VerlKey& known : KnownVerlKeys()) {
    INFO(known.key);
    REQUIRE(ExplainConfig(std::string(known.key)).ok());
    REQUIRE(FindVerlKey(known.key) == &known);
  }
}

TEST_CASE("docs/reference/verl.md is what tandem-config-docs prints, without an unknown key") {
  std::ifstream file("docs/reference/verl.md");
  REQUIRE(file);
  std::ostringstream text;
  text << file.rdbuf();
  INFO("make it anew: build/bin/tandem-config-docs --verl > docs/reference/verl.md");
  REQUIRE((text.str() == VerlMarkdown()));
  REQUIRE(text.str().find("| unknown |") == std::string::npos);
}

}  // namespace
}  // namespace tandem
