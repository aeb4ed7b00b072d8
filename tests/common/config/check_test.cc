#include "common/config/check.h"

#include <fstream>

#include <catch2/catch.hpp>

#include "common/config/loaded_config.h"
#include "tests/common/config/config_file.h"

namespace tandem {
namespace {

std::string Problem(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(),
                   {"model.path=/m", "data.train_files=[/t.jsonl]", "cluster.run_dir=/r"});
  auto loaded = LoadConfig("", overrides);
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  return std::string(CheckConfigValues(*loaded).message());
}

TEST_CASE("the defaults with a model and data are valid") { REQUIRE(Problem({}).empty()); }

TEST_CASE("sampling that could draw nothing, or no numbers, is refused by key") {
  for (const std::string key : {"rollout.top_k", "rollout.val_kwargs.top_k"}) {
    REQUIRE(Problem({key + "=0"}).find(key) != std::string::npos);
    REQUIRE(Problem({key + "=0"}).find("-1 keeps all") != std::string::npos);
  }
  for (const std::string key : {"rollout.temperature", "rollout.val_kwargs.temperature"}) {
    REQUIRE(Problem({key + "=1e-40"}).find("at least 0.001") != std::string::npos);
    REQUIRE(Problem({key + "=0.001"}).empty());
  }
  REQUIRE(Problem({"rollout.val_kwargs.temperature=0"}).empty());
}

TEST_CASE("gspo and sapo are means over samples unless told otherwise, and sapo cannot be told") {
  const std::string sapo = "actor.policy_loss.loss_mode=sapo",
                    gspo = "actor.policy_loss.loss_mode=gspo",
                    tokens = "actor.loss_agg_mode=token-mean";
  for (const std::string& loss : {sapo, gspo}) {
    const auto loaded = LoadConfig("", {loss});
    REQUIRE(loaded->config.actor().loss_agg_mode() == "seq-mean-token-mean");
    REQUIRE(Problem({loss}).empty());
    REQUIRE(Problem({loss, "actor.loss_agg_mode=seq-mean-token-mean"}).empty());
  }
  REQUIRE(LoadConfig("", {gspo, tokens})->config.actor().loss_agg_mode() == "token-mean");
  REQUIRE(Problem({gspo, tokens}).empty());
  REQUIRE(Problem({sapo, tokens})
              .find("set it to seq-mean-token-mean or leave it out "
                    "(actor.loss_agg_mode at --set") != std::string::npos);
  REQUIRE(LoadConfig("", {})->config.actor().loss_agg_mode() == "token-mean");
}

// verl 0.9.1: get_kl_controller asserts horizon > 0 for adaptive, and its first update divides by
// target_kl; fixed reads neither, and negative targets and coefficients are taken.
TEST_CASE("an adaptive KL controller that divides by 0 is refused by key, a fixed one is not") {
  const std::string used = "algorithm.use_kl_in_reward=true",
                    adaptive = "algorithm.kl_ctrl.type=adaptive";
  for (const std::string key : {"algorithm.kl_ctrl.horizon=0", "algorithm.kl_ctrl.horizon=-5",
                                "algorithm.kl_ctrl.target_kl=0"}) {
    INFO(key);
    REQUIRE(Problem({used, adaptive, key}).find(key.substr(0, key.find('=')) + " is ") == 0);
    REQUIRE(Problem({used, key}).empty());
    REQUIRE(Problem({adaptive, key}).empty());
  }
  REQUIRE(Problem({used, adaptive, "algorithm.kl_ctrl.target_kl=-0.1",
                   "algorithm.kl_ctrl.kl_coef=-0.2"})
              .empty());
}

// verl 0.9.1: get_cosine_schedule_with_warmup asserts 0 <= min_lr_ratio <= 1; its warm-up takes any
// ratio, and 1.5 of 6 steps never reaches the rate.
TEST_CASE("ratios of the learning rate outside 0 to 1 are refused when the config is read") {
  const std::string prefix = "actor.optim.";
  for (const std::string key : {"min_lr_ratio", "lr_warmup_steps_ratio"}) {
    for (const std::string value : {"-0.1", "1.5", "nan"}) {
      const auto loaded =
          LoadConfig("", {prefix + "lr_scheduler_type=cosine", prefix + key + "=" + value});
      INFO(key << " " << value);
      REQUIRE(absl::IsInvalidArgument(loaded.status()));
      REQUIRE(loaded.status().message().find(prefix + key) != std::string::npos);
    }
    for (const std::string value : {"0", "1"}) {
      REQUIRE(Problem({prefix + "lr_scheduler_type=cosine", prefix + key + "=" + value}).empty());
    }
  }
}

TEST_CASE("a policy loss without what it needs is refused by key") {
  REQUIRE(Problem({"actor.policy_loss.loss_mode=dro"})
              .find("needs actor.policy_loss.dro_beta above 0") != std::string::npos);
  REQUIRE(Problem({"actor.policy_loss.loss_mode=dro", "actor.policy_loss.dro_beta=0.1"}).empty());
  const std::string bounds = "actor.policy_loss.clip_cov_lb=5";
  REQUIRE(Problem({"actor.policy_loss.loss_mode=clip_cov", bounds})
              .find("no covariance is between them") != std::string::npos);
  REQUIRE(Problem({bounds}).empty());
}

TEST_CASE("required keys are asked for by name") {
  LoadedConfig defaults{.config = DefaultConfig()};
  const std::string problem(CheckConfigValues(defaults).message());
  REQUIRE(problem.find("model.path is required") != std::string::npos);
  REQUIRE(problem.find("data.train_files is required") != std::string::npos);
}

TEST_CASE("a file without a name is refused, and its key named") {
  REQUIRE(Problem({"data.train_files="}).find("data.train_files holds an empty file name") !=
          std::string::npos);
  REQUIRE(
      Problem({"data.train_files=[/a, '']"}).find("data.train_files holds an empty file name") !=
      std::string::npos);
  REQUIRE(Problem({"data.val_files=['']"}).find("data.val_files holds an empty file name") !=
          std::string::npos);
}

TEST_CASE("lengths and batches that cannot work are refused") {
  REQUIRE(Problem({"rollout.max_model_len=100"}).find("less than") != std::string::npos);
  REQUIRE(Problem({"actor.ppo_max_token_len_per_gpu=100"}).find("could not hold one sample") !=
          std::string::npos);
  REQUIRE(Problem({"actor.ppo_mini_batch_size=3"}).find("does not divide") != std::string::npos);
  REQUIRE(Problem({"cluster.run_dir=/" + std::string(90, 'x')}).find("characters long") !=
          std::string::npos);
}

TEST_CASE("dynamic sampling that could never work is refused") {
  const std::string enable = "algorithm.filter_groups.enable=true";
  const std::string metric = "algorithm.filter_groups.metric=";
  REQUIRE(Problem({enable}).empty());
  REQUIRE(Problem({enable, "rollout.n=1"})
              .find("with rollout.n=1 all are; raise rollout.n, or set it to false (rollout.n at "
                    "--set, algorithm.filter_groups.enable at --set)") != std::string::npos);
  REQUIRE(Problem({enable, metric}).find("metric is empty: name a key") != std::string::npos);
  const std::string kl = "algorithm.use_kl_in_reward=true";
  REQUIRE(Problem({enable, metric + "seq_final_reward", kl}).find("set it to seq_reward") !=
          std::string::npos);
  REQUIRE(Problem({enable, metric + "seq_final_reward"}).empty());
  REQUIRE(Problem({enable, metric + "seq_reward", kl}).empty());
  REQUIRE(Problem({metric}).empty());  // nothing is filtered
}

TEST_CASE("keys that contradict each other are refused") {
  REQUIRE(Problem({"rollout.top_p=0.9"}).find("off-support") != std::string::npos);
  REQUIRE(Problem({"rollout.top_k=5", "rollout.allow_off_support=true"}).empty());
  REQUIRE(Problem({"rollout.calculate_log_probs=false"}).find("recompute") != std::string::npos);
  REQUIRE(Problem({"actor.calculate_sum_pi_squared=true"}).find("recompute: set it") !=
          std::string::npos);
  REQUIRE(Problem({"actor.calculate_sum_pi_squared=true", "actor.old_log_prob=recompute"}).empty());
  REQUIRE(Problem({"trainer.resume_mode=resume_path"}).find("resume_from_path") !=
          std::string::npos);
  REQUIRE(Problem({"trainer.test_freq=5"}).find("data.val_files") != std::string::npos);
  REQUIRE(Problem({"actor.optim.betas=[0.9]"}).find("two numbers") != std::string::npos);
  REQUIRE(Problem({"trainer.device=cuda"}).empty());
  REQUIRE(Problem({"trainer.device=cuda", "model.compute_dtype=float32"}).find("bfloat16 alone") !=
          std::string::npos);
  REQUIRE(Problem({"cluster.heartbeat_seconds=9"}).find("at least twice") != std::string::npos);
}

TEST_CASE("what a weight sync cannot do is refused with the way on") {
  REQUIRE(Problem({"weight_sync.check_only=true"}).empty());
  REQUIRE(Problem({"weight_sync.check_only=true", "weight_sync.check=off"})
              .find("nothing to check: weight_sync.check is off") != std::string::npos);
  REQUIRE(Problem({"weight_sync.transport=shm"}).empty());
  REQUIRE(Problem({"weight_sync.transport=ipc"}).find("needs CUDA devices") != std::string::npos);
}

TEST_CASE("verl's names of the weight check mean ours") {
  const std::string base = "actor_rollout_ref.rollout.checkpoint_engine.check_weight_sync";
  const auto loaded = LoadConfig("", {base + "=true", base + "_only=true"});
  REQUIRE(loaded.ok());
  REQUIRE(loaded->config.weight_sync().check() == "first");
  REQUIRE(loaded->config.weight_sync().check_only());
  const auto off = LoadConfig("", {base + "=false"});
  REQUIRE(off.ok());
  REQUIRE(off->config.weight_sync().check() == "off");
  REQUIRE(!LoadConfig("", {"weight_sync.check=every 0"}).ok());
  REQUIRE(LoadConfig("", {"weight_sync.check=every 5"}).ok());
}

TEST_CASE("masters that the layers compute with are not offloaded") {
  REQUIRE(Problem({"actor.fsdp_config.param_offload=true"}).empty());
  REQUIRE(Problem({"actor.fsdp_config.param_offload=true", "model.compute_dtype=float32"})
              .find("needs model.compute_dtype=bfloat16") != std::string::npos);
}

TEST_CASE("listening beyond this host needs all of TLS") {
  REQUIRE(Problem({"cluster.listen=127.0.0.1:0"}).empty());
  REQUIRE(Problem({"cluster.listen=0.0.0.0:5000"}).find("needs cluster.tls") != std::string::npos);
  REQUIRE(Problem({"cluster.tls.cert=/c"}).find("come together") != std::string::npos);
  REQUIRE(Problem({"cluster.listen=0.0.0.0:5000", "cluster.tls.cert=/c", "cluster.tls.key=/k",
                   "cluster.tls.ca=/a"})
              .empty());
}

TEST_CASE("files that do not exist are named before anything starts") {
  const testing::ConfigFile file("");
  auto loaded = LoadConfig("", {"model.path=" + file.dir(), "cluster.run_dir=/r",
                                "data.train_files=[" + file.dir() + "/t.jsonl]"});
  REQUIRE(loaded.ok());
  REQUIRE(absl::IsNotFound(CheckConfig(*loaded)));
  REQUIRE(std::string(CheckConfig(*loaded).message()) ==
          "model.path " + file.dir() +
              " is not a model directory: it has no config.json "
              "(model.path at --set)\ndata.train_files: " +
              file.dir() + "/t.jsonl does not exist (data.train_files at --set)");
  std::ofstream(file.dir() + "/config.json") << "{}";
  std::ofstream(file.dir() + "/t.jsonl") << "{}";
  REQUIRE(CheckConfig(*loaded).ok());
}

}  // namespace
}  // namespace tandem
