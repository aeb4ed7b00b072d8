#include "common/config/rollout_rules.h"

#include <string>
#include <vector>

#include <fmt/format.h>

#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

class PartialRules {
 public:
  PartialRules(const v1::Config& config, ConfigProblems& problems)
      : config_(config),
        keys_(config.rollout().partial()),
        batch_(config.data().train_batch_size()),
        problems_(problems) {}

  void Check() {
    CheckCap();
    if (keys_.until_groups() > 0) CheckUntilGroups();
    if (PartialEnabled(config_)) CheckTogether();
  }

 private:
  void Require(bool ok, const std::vector<std::string>& keys, const std::string& text) {
    problems_.Require(ok, keys, text);
  }

  void CheckCap() {
    const int64_t splits = config_.algorithm().partial_rollout_max_split();
    Require(keys_.max_tokens_per_round() == 0 || splits == 0,
            {"rollout.partial.max_tokens_per_round", "algorithm.partial_rollout_max_split"},
            fmt::format("rollout.partial.max_tokens_per_round={} and "
                        "algorithm.partial_rollout_max_split={} both say how many tokens a sample "
                        "gets in a round; leave one of them out",
                        keys_.max_tokens_per_round(), splits));
  }

  void CheckUntilGroups() {
    const int64_t until = keys_.until_groups();
    const bool own = keys_.groups_per_round() > 0;
    const int64_t issued = own ? keys_.groups_per_round() : batch_;
    const char* what = own ? "rollout.partial.groups_per_round" : "data.train_batch_size";
    Require(until <= issued, {"rollout.partial.until_groups", "rollout.partial.groups_per_round"},
            fmt::format("rollout.partial.until_groups={} waits for more groups than a round has, "
                        "{}={}; raise rollout.partial.groups_per_round, or lower until_groups",
                        until, what, issued));
    // Whole groups that wait count, so that every round after the first would end as it begins.
    Require(until >= batch_, {"rollout.partial.until_groups", "data.train_batch_size"},
            fmt::format("rollout.partial.until_groups={} ends rounds before they have the groups "
                        "of one batch, data.train_batch_size={}: no step could train; raise "
                        "until_groups to {} or more, and rollout.partial.groups_per_round with it",
                        until, batch_, batch_));
  }

  void CheckTogether() {
    Require(!keys_.overlap() || config_.rollout().free_cache_engine() == "false",
            {"rollout.partial.overlap", "rollout.free_cache_engine"},
            fmt::format("rollout.partial.overlap=true generates while the trainers train, and "
                        "rollout.free_cache_engine={} {} the KV cache away then, of every rollout, "
                        "as each shares its device with a trainer; set it to false",
                        config_.rollout().free_cache_engine(),
                        config_.rollout().free_cache_engine() == "auto" ? "may take" : "takes"));
  }

  const v1::Config& config_;
  const v1::Partial& keys_;
  const int64_t batch_;
  ConfigProblems& problems_;
};

}  // namespace

int64_t PartialCap(const v1::Config& config) {
  const int64_t cap = config.rollout().partial().max_tokens_per_round();
  const int64_t splits = config.algorithm().partial_rollout_max_split();
  if (cap > 0 || splits == 0) return cap;
  return (config.data().max_response_length() + splits - 1) / splits;
}

bool PartialEnabled(const v1::Config& config) {
  const v1::Partial& keys = config.rollout().partial();
  return PartialCap(config) > 0 || keys.until_groups() > 0 || keys.round_seconds() > 0 ||
         keys.overlap();
}

bool TrainsOlderTokens(const v1::Config& config) {
  return PartialEnabled(config) || config.trainer().off_policy_steps() > 0;
}

void CheckOneStepOff(const v1::Config& config, ConfigProblems& problems) {
  if (config.trainer().off_policy_steps() == 0) return;
  problems.Require(
      !config.cluster().hybrid_engine(), {"trainer.off_policy_steps", "cluster.hybrid_engine"},
      "trainer.off_policy_steps=1 generates the next batch while the trainers train this one, and "
      "with cluster.hybrid_engine=true both take turns on one device: set "
      "cluster.hybrid_engine=false, which gives each its own");
  problems.Require(
      !PartialEnabled(config),
      {"trainer.off_policy_steps", "rollout.partial.overlap",
       "rollout.partial.max_tokens_per_round", "rollout.partial.until_groups",
       "rollout.partial.round_seconds", "algorithm.partial_rollout_max_split"},
      "trainer.off_policy_steps=1 generates whole batches, by the weights of one step, and "
      "rollout.partial interrupts samples and continues them by later weights: leave one of the "
      "two "
      "out");
}

void CheckPartialRollout(const v1::Config& config, ConfigProblems& problems) {
  PartialRules(config, problems).Check();
}

void CheckLora(const v1::Config& config, ConfigProblems& problems) {
  const v1::Lora& lora = config.model().lora();
  const auto require = [&problems](bool ok, const std::vector<std::string>& keys,
                                   const std::string& text) { problems.Require(ok, keys, text); };
  if (lora.rank() == 0) {
    require(!config.actor().checkpoint().save_lora_only(),
            {"actor.checkpoint.save_lora_only", "model.lora.rank"},
            "actor.checkpoint.save_lora_only=true saves adapters, and model.lora.rank=0 has none: "
            "give it a rank, or set save_lora_only to false");
    require(lora.adapter_path().empty(), {"model.lora.adapter_path", "model.lora.rank"},
            "model.lora.adapter_path names adapters, and model.lora.rank=0 trains all weights: set "
            "the rank to theirs, or leave the path out");
    return;
  }
  require(
      lora.dropout() == 0 || !lora.merge(), {"model.lora.dropout", "model.lora.merge"},
      "model.lora.dropout drops inputs of adapters, and with model.lora.merge=true they have no "
      "input of their own: set dropout to 0, or model.lora.merge=false");
  require(
      lora.dropout() < 1, {"model.lora.dropout"},
      "model.lora.dropout=1 drops every input of the adapters, which then learn nothing: set it "
      "to 0 or more and below 1");
  require(lora.dropout() == 0 || config.trainer().device() != "cuda",
          {"model.lora.dropout", "trainer.device"},
          "model.lora.dropout is built for CPUs only so far: set dropout to 0, or "
          "trainer.device=cpu");
  require(!config.actor().fsdp_config().param_offload(),
          {"actor.fsdp_config.param_offload", "model.lora.rank"},
          "actor.fsdp_config.param_offload=true moves the masters away, and with model.lora only "
          "the adapters have some: set it to false");
}

}  // namespace tandem
