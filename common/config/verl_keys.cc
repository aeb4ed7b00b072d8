// verl's keys that have no counterpart of their own here, and what to use instead.
#include <array>
#include <utility>

#include "common/config/schema.h"

namespace tandem {
namespace {

// In the spelling of CanonicalKey; a section stands for everything in it.
constexpr std::array<std::pair<const char*, const char*>, 34> kElsewhere = {{
    {"trainer.n_gpus_per_node", "cluster.trainers and cluster.rollouts say how many devices"},
    {"data.gen_batch_size",
     "algorithm.filter_groups refills with batches of data.train_batch_size; leave it out"},
    {"algorithm.filter_groups.max_inflight_gen_batches",
     "one batch is generated at a time; leave it out"},
    {"trainer.nnodes", "a run has one host; cluster.trainers says how many devices"},
    {"trainer.critic_warmup", "there is no critic; leave it out"},
    {"trainer.rollout_data_dir",
     "texts and rewards of every step are in run.db (tandemctl samples); trainer.save_batch_freq "
     "saves token arrays"},
    {"rollout.name", "there is one rollout engine; leave it out"},
    {"rollout.mode", "rollouts are always servers; leave it out"},
    {"rollout.tensor_model_parallel_size",
     "a rollout is one device; leave it out and set cluster.rollouts"},
    {"rollout.enforce_eager", "there are no graphs to capture; leave it out"},
    {"rollout.enable_chunked_prefill", "prefill is always chunked; rollout.max_num_batched_tokens"},
    {"rollout.log_prob_micro_batch_size_per_gpu",
     "actor.ppo_max_token_len_per_gpu packs by tokens"},
    {"rollout.log_prob_use_dynamic_bsz", "actor.ppo_max_token_len_per_gpu packs by tokens"},
    {"actor.strategy", "weights are always sharded over cluster.trainers; leave it out"},
    {"actor.fsdp_config",
     "weights are always sharded over cluster.trainers; of this section there are param_offload, "
     "optimizer_offload, reshard_after_forward and forward_prefetch"},
    {"actor.ppo_micro_batch_size", "actor.ppo_max_token_len_per_gpu packs by tokens"},
    {"actor.ppo_micro_batch_size_per_gpu", "actor.ppo_max_token_len_per_gpu packs by tokens"},
    {"actor.use_dynamic_bsz", "actor.ppo_max_token_len_per_gpu packs by tokens, always"},
    {"actor.calculate_entropy", "the entropy is always computed and logged; leave it out"},
    {"actor.entropy_checkpointing", "no logits of all tokens are ever whole; leave it out"},
    {"actor.entropy_from_logits_with_chunking",
     "no logits of all tokens are ever whole; leave it out"},
    {"actor.data_loader_seed", "mini-batches are drawn with trainer.seed"},
    {"algorithm.use_pf_ppo", "there is no PF-PPO; leave it out"},
    {"algorithm.pf_ppo", "there is no PF-PPO; leave it out"},
    {"trainer.log_val_generations", "all samples are kept; tandemctl samples shows them"},
    {"actor.ulysses_sequence_parallel_size", "there is no sequence parallelism; leave it out"},
    {"ref", "the reference policy is model.path, sharded as the actor; there is ref.offload"},
    {"actor_rollout_ref.ref",
     "the reference policy is model.path, sharded as the actor; there is ref.offload"},
    {"model.use_remove_padding", "sequences are always packed; leave it out"},
    {"critic", "there is no critic; leave it out"},
    {"reward_model", "reward.function and reward.service_address"},
    {"custom_reward_function", "reward.function=remote with reward.service_address"},
    {"ray_init", "there is no Ray; leave it out"},
    {"ray_kwargs", "there is no Ray; leave it out"},
}};

}  // namespace

std::string InsteadOfVerlKey(const std::string& key) {
  for (const std::string& spelled : {key, CanonicalKey(key)}) {
    for (const auto& [theirs, instead] : kElsewhere) {
      if (spelled == theirs || spelled.starts_with(std::string(theirs) + ".")) return instead;
    }
  }
  return "";
}

std::string Suggestion(const std::string& key) {
  const std::string instead = InsteadOfVerlKey(key);
  if (!instead.empty()) return "verl's; here: " + instead;
  const std::string nearest = NearestKey(key);
  return nearest.empty() ? "docs/config.md has all keys" : "did you mean " + nearest + "?";
}

}  // namespace tandem
