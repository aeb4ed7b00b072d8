// verl's keys that have no counterpart of their own here, and what to use instead.
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "common/config/schema.h"

namespace tandem {
namespace {

// Spelled as CanonicalKey returns them; a section stands for all its keys.
constexpr std::array<std::pair<const char*, const char*>, 89> kElsewhere = {{
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
    {"rollout.enforce_eager",
     "decoding needs no key for that: a GPU captures what it can as graphs; leave it out"},
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
    // The fully asynchronous trainer and its neighbours.
    {"async_training.partial_rollout",
     "rollout.partial.max_tokens_per_round, until_groups or round_seconds interrupt samples, which "
     "continue in the next step; with rollout.partial.overlap generation continues during training "
     "(docs/guides/partial_rollout.md)"},
    {"async_training.staleness_threshold",
     "rollout.partial.max_staleness with rollout.partial.overlap: in whole batches, where verl's "
     "is a share of samples"},
    {"async_training.trigger_parameter_sync_step",
     "weights are synced after every step of data.train_batch_size prompts; leave it out"},
    {"async_training.require_batches",
     "a step trains on data.train_batch_size prompts, in updates of actor.ppo_mini_batch_size; "
     "leave it out"},
    {"async_training.use_rollout_log_probs", "actor.old_log_prob=rollout"},
    {"async_training.compute_prox_log_prob", "actor.old_log_prob=recompute"},
    {"async_training.use_trainer_do_validate", "the rollouts validate; leave it out"},
    {"async_training.checkpoint_engine", "weight_sync.bucket_mb; leave the rest out"},
    {"async_training",
     "rollout.partial, with rollout.partial.overlap for generation during training "
     "(docs/guides/partial_rollout.md)"},
    {"actor.use_rollout_log_probs", "actor.old_log_prob=rollout"},
    {"actor_rollout_ref.checkpoint_engine", "weight_sync.bucket_mb; leave the rest out"},
    {"rollout.nnodes", "a run has one host; cluster.rollouts says how many devices"},
    {"rollout.n_gpus_per_node", "cluster.rollouts says how many devices"},
    {"rollout.total_rollout_steps", "trainer.total_training_steps, of data.train_batch_size each"},
    {"rollout.total_epochs", "trainer.total_epochs"},
    {"rollout.test_freq", "trainer.test_freq"},
    {"rollout.over_sample_rate",
     "rollout.partial.until_groups with a larger rollout.partial.groups_per_round: what is cut "
     "goes on in the next step"},
    {"rollout.layered_summon",
     "weights are gathered and sent tensor by tensor, always; leave it out"},
    {"model.lora.lora_alpha", "model.lora.alpha"},
    {"model.lora.lora_rank", "model.lora.rank"},
    {"model.lora.type", "adapters are plain LoRA, without DoRA or other variants; leave it out"},
    {"actor_rollout_ref.hybrid_engine", "cluster.trainers and cluster.rollouts; leave it out"},
    {"hybrid_engine", "cluster.trainers and cluster.rollouts; leave it out"},
    {"model.use_shm", "files of weights are mapped where they are; leave it out"},
    {"data.use_shm", "files of data are read where they are; leave it out"},
    {"model.trust_remote_code", "no code of a model is ever run; leave it out"},
    {"data.trust_remote_code", "no code of a tokenizer is ever run; leave it out"},
    {"data.return_raw_chat",
     "rollouts get the tokens of the chat template, and rewards the prompt's text; leave it out"},
    {"data.dataloader_num_workers", "the data are read once, at the start; leave it out"},
    {"trainer.val_only",
     "trainer.val_before_train=true validates before the first step, and tandemctl evaluate "
     "whenever a run is up"},
    // Keys for which the nearest key here would be misleading.
    {"rollout.multi_turn", "a rollout generates one response to a prompt; leave it out"},
    {"rollout.agent", "a rollout generates one response to a prompt; leave it out"},
    {"rollout.engine_kwargs", "there is one rollout engine; leave it out"},
    {"rollout.data_parallel_size", "cluster.rollouts says how many there are; leave it out"},
    {"rollout.pipeline_model_parallel_size", "a rollout is one device; leave it out"},
    {"rollout.expert_parallel_size", "a rollout is one device; leave it out"},
    {"rollout.cudagraph_capture_sizes", "there are no sizes to choose; leave it out"},
    {"rollout.log_prob_micro_batch_size", "actor.ppo_max_token_len_per_gpu packs by tokens"},
    {"rollout.log_prob_max_token_len_per_gpu", "actor.ppo_max_token_len_per_gpu packs by tokens"},
    {"rollout.prometheus", "tandemctl status and tandemctl steps; leave it out"},
    {"rollout.mtp", "there is no speculative decoding; leave it out"},
    {"model.mtp", "there is no speculative decoding; leave it out"},
    {"model.tiled_mlp",
     "micro-batches are packed by actor.ppo_max_token_len_per_gpu; leave it out"},
    {"model.use_liger", "kernels are Tandem's own; leave it out"},
    {"model.use_fused_kernels", "kernels are Tandem's own; leave it out"},
    {"model.fused_kernel_options", "kernels are Tandem's own; leave it out"},
    {"model.external_lib", "no code of a model is ever run; leave it out"},
    {"actor.use_torch_compile", "nothing is compiled at run time; leave it out"},
    {"actor.use_fused_kernels", "kernels are Tandem's own; leave it out"},
    {"actor.use_remove_padding", "sequences are always packed; leave it out"},
    {"actor.optim.optimizer", "the optimizer is AdamW; leave it out"},
    {"actor.optim.optimizer_impl", "the optimizer is AdamW; leave it out"},
    {"actor.checkpoint.load_contents", "all that was saved is loaded; leave it out"},
    {"reward_manager", "reward.function and reward.service_address"},
    {"transfer_queue", "the controller keeps samples in files of the run; leave it out"},
    {"ray_init", "there is no Ray; leave it out"},
    {"ray_kwargs", "there is no Ray; leave it out"},
}};

}  // namespace

std::string VerlReplacement(const std::string& key) {
  for (const std::string& spelled : {key, CanonicalKey(key)}) {
    for (const auto& [theirs, instead] : kElsewhere) {
      if (spelled == theirs || spelled.starts_with(std::string(theirs) + ".")) return instead;
    }
  }
  return "";
}

bool IsVerlSection(const std::string& key) {
  const std::string within = CanonicalKey(key) + ".";
  return std::any_of(kElsewhere.begin(), kElsewhere.end(), [&within](const auto& hint) {
    return std::string_view(hint.first).starts_with(within);
  });
}

std::string Suggestion(const std::string& key) {
  const std::string instead = VerlReplacement(key);
  if (!instead.empty()) return "verl's; here: " + instead;
  const std::string nearest = NearestKey(key);
  return nearest.empty() ? "docs/reference/config.md has all keys"
                         : "did you mean " + nearest + "?";
}

}  // namespace tandem
