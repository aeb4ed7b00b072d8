#include "common/config/unused_keys.h"

#include <catch2/catch.hpp>
#include <fmt/ranges.h>

#include "common/config/loaded_config.h"
#include "tests/common/config/config_file.h"

namespace tandem {
namespace {

using testing::ConfigFile;

std::vector<std::string> Notices(const std::vector<std::string>& overrides,
                                 const std::string& yaml = "") {
  const ConfigFile file(yaml);
  const auto loaded = LoadConfig(file.path(), overrides);
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  std::vector<std::string> notices = loaded->notices;
  for (std::string& notice : notices) {
    for (size_t at; (at = notice.find(file.path())) != std::string::npos;) {
      notice.replace(at, file.path().size(), "FILE");
    }
  }
  return notices;
}

// What makes a key count: with `without` it does not, with `with` it does.
struct Case {
  std::string key_value;
  std::vector<std::string> without, with;
};

void RequireIdle(const Case& c) {
  INFO(c.key_value);
  const std::string key = c.key_value.substr(0, c.key_value.find('='));
  std::vector<std::string> overrides = c.without;
  overrides.push_back(c.key_value);
  const std::vector<std::string> said = Notices(overrides);
  INFO(fmt::format("{}", fmt::join(said, "\n")));
  REQUIRE(said.size() == 1);
  REQUIRE(said[0].starts_with("--set: " + key + " has no effect: it needs "));
  for (const std::string& change : c.with) {
    INFO(change);
    std::vector<std::string> counting = c.without;
    counting.push_back(change);
    counting.push_back(c.key_value);
    REQUIRE(Notices(counting) == std::vector<std::string>());
  }
}

std::string Mode(const std::string& name) { return "actor.policy_loss.loss_mode=" + name; }

TEST_CASE("keys of another loss have no effect, and a notice says so") {
  const std::vector<std::string> clipping = {Mode("vanilla"),  Mode("gspo"),    Mode("cispo"),
                                             Mode("geo_mean"), Mode("dppo_tv"), Mode("dppo_kl"),
                                             Mode("clip_cov")};
  for (const char* mode : {"gpg", "dro", "sapo", "kl_cov"}) {
    for (const char* key :
         {"actor.clip_ratio=0.1", "actor.clip_ratio_low=0.1", "actor.clip_ratio_high=0.3"}) {
      RequireIdle({key, {Mode(mode)}, clipping});
    }
  }
  for (const char* mode :
       {"gspo", "cispo", "sapo", "geo_mean", "gpg", "dro", "clip_cov", "kl_cov"}) {
    RequireIdle({"actor.clip_ratio_c=10",
                 {Mode(mode)},
                 {Mode("vanilla"), Mode("dppo_tv"), Mode("dppo_kl")}});
  }
  const std::string loss_type = "algorithm.rollout_correction.loss_type=";
  for (const char* key : {"actor.clip_ratio_low=0.1", "actor.clip_ratio_c=10"}) {
    RequireIdle({key,
                 {"algorithm.rollout_correction.bypass_mode=true", loss_type + "reinforce"},
                 {loss_type + "ppo_clip", "algorithm.rollout_correction.bypass_mode=false"}});
  }
  RequireIdle({"actor.tau_pos=2", {}, {Mode("sapo")}});
  RequireIdle({"actor.tau_neg=2", {}, {Mode("sapo")}});
  for (const char* key : {"clip_cov_ratio=0.1", "clip_cov_lb=0", "clip_cov_ub=9"}) {
    RequireIdle({std::string("actor.policy_loss.") + key, {Mode("kl_cov")}, {Mode("clip_cov")}});
  }
  for (const char* key : {"kl_cov_ratio=0.1", "ppo_kl_coef=1"}) {
    RequireIdle({std::string("actor.policy_loss.") + key, {Mode("clip_cov")}, {Mode("kl_cov")}});
  }
  RequireIdle({"actor.policy_loss.dro_beta=0.1", {}, {Mode("dro")}});
  RequireIdle({"actor.loss_agg_mode=token-sum",
               {Mode("geo_mean")},
               {Mode("vanilla"), "actor.use_kl_loss=true", "actor.entropy_coeff=0.1"}});
  RequireIdle({"actor.loss_scale_factor=9", {}, {"actor.loss_agg_mode=seq-mean-token-sum-norm"}});
}

TEST_CASE("importance weights that ppo_clip in bypass mode only reports are told") {
  const std::string section = "algorithm.rollout_correction.";
  const std::string threshold = section + "rollout_is_threshold=3";
  const auto notices = [&](std::vector<std::string> more) {
    more.insert(more.end(), {section + "bypass_mode=true", "actor.old_log_prob=rollout"});
    return Notices(more);
  };
  for (const char* type : {"token", "sequence"}) {
    const std::string weighs = section + "rollout_is=" + type;
    const auto said = notices({weighs, threshold});
    REQUIRE(said.size() == 2);
    REQUIRE(said[0] ==
            "--set: " + section + "rollout_is has no effect but on metrics: it needs " + section +
                "loss_type=reinforce or bypass_mode=false: the ratio of ppo_clip is the rollout's "
                "already");
    REQUIRE(said[1].starts_with("--set: " + section +
                                "rollout_is_threshold has no effect but on metrics: it needs "));
    REQUIRE(notices({weighs, threshold, section + "loss_type=ppo_clip"}).size() == 2);
    REQUIRE(notices({weighs, threshold, section + "loss_type=reinforce"}).empty());
    REQUIRE(Notices({weighs, threshold}).empty());
  }
  REQUIRE(notices({section + "rollout_is=none"}).empty());
  // Without weights the threshold has no effect at all.
  const auto alone = notices({threshold});
  REQUIRE(alone.size() == 1);
  REQUIRE(alone[0].starts_with("--set: " + section + "rollout_is_threshold has no effect: it"));
  REQUIRE(notices({section + "rollout_rs=token_k1", section + "rollout_rs_threshold=2"}).empty());
}

TEST_CASE("of a loss that was added no key is said to have no effect") {
  ConfigOrigins origins;
  for (const char* key :
       {"clip_ratio", "clip_ratio_low", "clip_ratio_high", "clip_ratio_c", "tau_pos", "tau_neg",
        "policy_loss.clip_cov_ratio", "policy_loss.clip_cov_lb", "policy_loss.clip_cov_ub",
        "policy_loss.kl_cov_ratio", "policy_loss.ppo_kl_coef", "policy_loss.dro_beta",
        "loss_agg_mode"}) {
    origins[std::string("actor.") + key] = "f.yaml:1";
  }
  v1::Config config = DefaultConfig();
  config.mutable_actor()->mutable_policy_loss()->set_loss_mode("added_by_a_user");
  REQUIRE(UnusedKeyNotices(config, origins) == std::vector<std::string>());
  config.mutable_actor()->mutable_policy_loss()->set_loss_mode("gpg");
  REQUIRE(UnusedKeyNotices(config, origins).size() == 12);  // all but loss_agg_mode
}

TEST_CASE("keys of a KL term that is off have no effect, and a notice says so") {
  RequireIdle({"actor.kl_loss_coef=0.01", {}, {"actor.use_kl_loss=true"}});
  RequireIdle({"actor.kl_loss_coef=0.001", {}, {"actor.use_kl_loss=true"}});  // the default's value
  RequireIdle({"actor.kl_loss_type=k2", {}, {"actor.use_kl_loss=true"}});
  const std::string in_reward = "algorithm.use_kl_in_reward=true";
  RequireIdle({"algorithm.kl_penalty=k2", {}, {in_reward}});
  RequireIdle({"algorithm.kl_ctrl.kl_coef=0.1", {}, {in_reward}});
  RequireIdle({"algorithm.kl_ctrl.type=adaptive", {}, {in_reward}});
  for (const char* key : {"algorithm.kl_ctrl.horizon=9", "algorithm.kl_ctrl.target_kl=9"}) {
    RequireIdle({key, {}, {}});
    RequireIdle({key, {in_reward}, {"algorithm.kl_ctrl.type=adaptive"}});
  }
  RequireIdle({"algorithm.kl_ctrl.type=adaptive",
               {in_reward, "algorithm.kl_ctrl.kl_coef=0"},
               {"algorithm.kl_ctrl.kl_coef=0.5"}});
  RequireIdle({"ref.offload=true", {}, {in_reward, "actor.use_kl_loss=true"}});
  RequireIdle({"ref.offload=true", {in_reward, "model.lora.rank=8"}, {"model.lora.rank=0"}});
}

TEST_CASE("other keys that a switch has put aside are told") {
  RequireIdle({"algorithm.norm_adv_by_std_in_grpo=false",
               {"algorithm.adv_estimator=rloo"},
               {"algorithm.adv_estimator=grpo", "algorithm.adv_estimator=grpo_passk"}});
  for (const char* key : {"metric=acc", "max_num_gen_batches=3"}) {
    RequireIdle({std::string("algorithm.filter_groups.") + key,
                 {},
                 {"algorithm.filter_groups.enable=true"}});
  }
  RequireIdle({"algorithm.rollout_correction.rollout_is_threshold=3",
               {},
               {"algorithm.rollout_correction.rollout_is=token"}});
  for (const char* key : {"overlong_buffer.len=3", "overlong_buffer.penalty_factor=3",
                          "overlong_buffer.log=true", "max_resp_len=3"}) {
    RequireIdle({std::string("reward.") + key, {}, {"reward.overlong_buffer.enable=true"}});
  }
  for (const char* key : {"service_address=unix:/x", "timeout_seconds=3", "retries=1"}) {
    RequireIdle({std::string("reward.") + key, {}, {"reward.function=remote"}});
  }
  RequireIdle({"reward.args={a: 1}", {"reward.function=remote"}, {"reward.function=number"}});
  const std::vector<std::string> falling = {"actor.optim.lr_scheduler_type=cosine",
                                            "actor.optim.lr_scheduler_type=wsd"};
  RequireIdle({"actor.optim.min_lr_ratio=0.1", {}, falling});
  RequireIdle({"actor.optim.num_cycles=1", {}, falling});
  RequireIdle({"actor.optim.stable_ratio=0.5", {falling[0]}, {falling[1]}});
  RequireIdle({"actor.optim.total_training_steps=9",
               {},
               {falling[0], falling[1], "actor.optim.lr_warmup_steps_ratio=0.1"}});
  RequireIdle({"actor.optim.lr_warmup_steps_ratio=0.1",
               {"actor.optim.lr_warmup_steps=3"},
               {"actor.optim.lr_warmup_steps=0", "actor.optim.lr_warmup_steps=-1"}});
  for (const char* key : {"temperature=0.5", "top_p=0.9", "top_k=5"}) {
    RequireIdle(
        {std::string("rollout.val_kwargs.") + key, {}, {"rollout.val_kwargs.do_sample=true"}});
  }
  RequireIdle({"data.truncation=left", {}, {"data.filter_overlong_prompts=false"}});
  RequireIdle({"data.seed=7", {"data.shuffle=false"}, {"data.shuffle=true"}});
  RequireIdle({"data.val_max_samples=7", {}, {"data.val_files=v.jsonl"}});
  RequireIdle({"trainer.total_epochs=7",
               {"trainer.total_training_steps=3"},
               {"trainer.total_training_steps=0"}});
  RequireIdle({"trainer.resume_from_path=/x", {}, {"trainer.resume_mode=resume_path"}});
  for (const char* key : {"alpha=32", "target_modules=[q_proj]", "exclude_modules=[q_proj]",
                          "merge=false", "dropout=0.1", "target_parameters=[experts]"}) {
    RequireIdle({std::string("model.lora.") + key, {}, {"model.lora.rank=8"}});
  }
  RequireIdle({"data.validation_shuffle=true", {}, {"data.val_files=v.jsonl"}});
  RequireIdle({"trainer.expected_val_rise=0.1", {}, {"data.val_files=v.jsonl"}});
}

TEST_CASE("keys of adapters have no effect without a rank, and a notice says so") {
  for (const char* key :
       {"model.lora.alpha=32", "model.lora.target_modules=[q_proj]",
        "model.lora.exclude_modules=[q_proj]", "model.lora.target_parameters=[q_proj.weight]"}) {
    RequireIdle({key, {}, {"model.lora.rank=8"}});
  }
}

TEST_CASE("keys of partial rollout have no effect where nothing cuts, and a notice says so") {
  const std::string cap = "rollout.partial.max_tokens_per_round=8",
                    overlap = "rollout.partial.overlap=true";
  for (const char* key :
       {"groups_per_round=1024", "max_versions=3", "max_rounds_without_batch=9"}) {
    RequireIdle({std::string("rollout.partial.") + key,
                 {},
                 {cap, overlap, "rollout.partial.until_groups=1",
                  "rollout.partial.round_seconds=0.5", "algorithm.partial_rollout_max_split=2"}});
  }
  RequireIdle({"rollout.partial.max_staleness=2", {cap}, {overlap}});
}

TEST_CASE("keys of partial rollout that cut nothing are told") {
  const std::string length = "data.max_response_length=100";
  const std::string cap = "rollout.partial.max_tokens_per_round=";
  for (const char* value : {"100", "101"}) {
    const auto said = Notices({length, cap + value});
    REQUIRE(said.size() == 1);
    REQUIRE(said[0] ==
            "--set: rollout.partial.max_tokens_per_round has no effect but on what earlier "
            "settings left in the pool: it needs a value below data.max_response_length, which "
            "nothing is longer than");
  }
  REQUIRE(Notices({length, cap + "99"}).empty());
  REQUIRE(Notices({length, cap + "0"}).empty());
  const std::string split = "algorithm.partial_rollout_max_split=";
  const auto one = Notices({length, split + "1"});
  REQUIRE(one.size() == 1);
  REQUIRE(one[0].starts_with("--set: algorithm.partial_rollout_max_split has no effect but on"));
  REQUIRE(Notices({length, split + "2"}).empty());
  REQUIRE(Notices({length, split + "0"}).empty());

  RequireIdle({"rollout.partial.overlap=true",
               {"rollout.partial.max_staleness=0"},
               {"rollout.partial.max_staleness=1"}});
  REQUIRE(Notices({"rollout.partial.overlap=true"}).empty());
}

TEST_CASE("a round that waits for all of its groups is told, unless something else ends it") {
  const std::string until = "rollout.partial.until_groups=", batch = "data.train_batch_size=8";
  const std::string groups = "rollout.partial.groups_per_round=";
  for (const auto& settings : {std::vector<std::string>{batch, until + "8"},
                               std::vector<std::string>{batch, until + "8", groups + "8"}}) {
    const auto said = Notices(settings);
    REQUIRE(said.size() == 1);
    REQUIRE(said[0] ==
            "--set: rollout.partial.until_groups has no effect: it needs "
            "rollout.partial.groups_per_round above it, so that some are left to cut");
  }
  REQUIRE(Notices({batch, until + "8", groups + "9"}).empty());
  // Whole ones that were left count, so that a round of 12 need not make all of them whole.
  REQUIRE(Notices({batch, until + "12", groups + "12"}).empty());
  for (const char* other :
       {"rollout.partial.max_tokens_per_round=50", "rollout.partial.round_seconds=1",
        "rollout.partial.overlap=true", "algorithm.partial_rollout_max_split=2"}) {
    REQUIRE(Notices({batch, until + "8", "data.max_response_length=100", other}).empty());
  }
}

TEST_CASE("a split into single tokens is told with the length that it is of") {
  const std::string length = "data.max_response_length=100";
  for (const char* splits : {"100", "4000"}) {
    const auto said =
        Notices({length, std::string("algorithm.partial_rollout_max_split=") + splits});
    REQUIRE(said.size() == 1);
    REQUIRE(said[0].starts_with(std::string("--set: algorithm.partial_rollout_max_split=") +
                                splits +
                                " cuts every sample after 1 token, as "
                                "data.max_response_length is 100"));
  }
  REQUIRE(Notices({length, "algorithm.partial_rollout_max_split=99"}).empty());  // two tokens
}

TEST_CASE("clip_ratio beside both of its sides is told with their places") {
  const std::string yaml =
      "actor:\n  clip_ratio: 0.1\n  clip_ratio_low: 0.2\n  clip_ratio_high: 0.28\n";
  const std::vector<std::string> said = Notices({}, yaml);
  REQUIRE(said.size() == 1);
  REQUIRE(said[0] ==
          "FILE:2: actor.clip_ratio has no effect: actor.clip_ratio_low (FILE:3) and "
          "actor.clip_ratio_high (FILE:4) go before it; change those, or leave them out");
  // Those of a base file, too.
  const ConfigFile base("actor: {clip_ratio_low: 0.2, clip_ratio_high: 0.2}\n");
  const auto over = Notices({"actor.clip_ratio=0.1"}, "base: " + base.path() + "\n");
  REQUIRE(over.size() == 1);
  REQUIRE(over[0].find("--set: actor.clip_ratio has no effect: actor.clip_ratio_low (" +
                       base.path() + ":1)") == 0);
  // One of them leaves it the other, and what says the same is no surprise.
  REQUIRE(Notices({"actor.clip_ratio=0.1", "actor.clip_ratio_high=0.28"}).empty());
  REQUIRE(Notices({"actor.clip_ratio=0.3", "actor.clip_ratio_low=0.3", "actor.clip_ratio_high=0.3"})
              .empty());
  // With a loss that does not clip it is told once.
  REQUIRE(Notices({Mode("gpg"), "actor.clip_ratio=0.1", "actor.clip_ratio_low=0.2",
                   "actor.clip_ratio_high=0.3"})
              .size() == 3);
}

TEST_CASE("a notice names file and line, and what is written as without says nothing") {
  const std::vector<std::string> said =
      Notices({}, "actor:\n  grad_clip: 1\n  kl_loss_coef: 0.01\n");
  REQUIRE(said == std::vector<std::string>{
                      "FILE:3: actor.kl_loss_coef has no effect: it needs actor.use_kl_loss=true"});
  // The switch is there to be seen, and the value is what it would be anyway.
  REQUIRE(Notices({}, "actor: {use_kl_loss: false, kl_loss_coef: 0.001}\n").empty());
  REQUIRE(Notices({}, "actor: {use_kl_loss: false, kl_loss_coef: 0.01}\n").size() == 1);
  REQUIRE(Notices({}).empty());
}

TEST_CASE("a whole configuration printed as YAML gives no notices when it is read again") {
  const auto loaded = LoadConfig("", {"data.max_response_length=77", "actor.clip_ratio=0.1",
                                      "model.path=/m", "actor.policy_loss.loss_mode=gspo"});
  REQUIRE(loaded.ok());
  REQUIRE(Notices({}, ConfigToYaml(loaded->config)) == std::vector<std::string>());
}

}  // namespace
}  // namespace tandem
