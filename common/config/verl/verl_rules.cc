// It is one file because the rules are one table, in which a key is looked up.
#include "common/config/verl/verl_rules.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <unordered_map>

#include "common/config/verl/known_keys.h"

namespace tandem {
namespace {

constexpr char kAny[] = "*";
constexpr char kNone[] = "";
constexpr char kOff[] = "false";

// Reasons that many keys share.
constexpr char kPacked[] =
    "micro-batches are packed by tokens, up to actor.ppo_max_token_len_per_gpu; no result depends "
    "on them";
constexpr char kSharded[] = "weights are always sharded over cluster.trainers";
constexpr char kPrecision[] =
    "model.compute_dtype is that of weights and activations; gradients are summed in float32";
constexpr char kOwnKernels[] = "kernels are Tandem's own";
constexpr char kNoCompile[] = "nothing is compiled at run time";
constexpr char kOneEngine[] = "there is one rollout engine, Tandem's own";
constexpr char kNoRay[] = "there is no Ray; the launcher starts the processes";
constexpr char kNoCritic[] =
    "there is no critic; estimators that need one are refused by algorithm.adv_estimator";
constexpr char kNoLogits[] = "the logits of all tokens are never whole";
constexpr char kNoProfiler[] =
    "there is no profiler to set; tandemctl steps and tandemctl memory show time and memory of "
    "every phase";
constexpr char kNoVision[] = "models are text models";
constexpr char kTextOnly[] = "data and models are text: images, videos and audio are not read";
constexpr char kTextRemedy[] = "leave it out, and train a text model on text";
constexpr char kNoDistillation[] = "there is no teacher model";
constexpr char kNoQueue[] = "the controller keeps samples in files of the run";
constexpr char kNoQat[] = "there is no quantization-aware training";
constexpr char kNoMtp[] = "there is no speculative decoding";
constexpr char kRewardModel[] = "there is no reward model inside of a run";
constexpr char kRewardRemedy[] =
    "serve it behind reward.function=remote with reward.service_address";
constexpr char kDrawn[] = "tokens are drawn with the parameters of the configuration alone";
constexpr char kOneDevice[] = "a rollout is one device";
constexpr char kOneDeviceRemedy[] = "set it to 1; cluster.rollouts says how many there are";
constexpr char kSequenceParallel[] = "there is no sequence parallelism";
constexpr char kMegatron[] = "there is no Megatron; weights are sharded as FSDP shards them";
constexpr char kFsdpRemedy[] = "leave the section out, or use verl's FSDP script of the model";
constexpr char kMultiTurn[] = "a rollout generates one response to a prompt, without tools";
constexpr char kLeaveOut[] = "leave it out";
constexpr char kAsync[] =
    "generation during training is rollout.partial.overlap (docs/guides/partial_rollout.md)";

// A section stands for all its keys that have no row.
constexpr VerlRule kRules[] = {
    // ---- the run
    {"trainer.critic_warmup", "0", kNoCritic,
     "set it to 0; above 0 verl does not train the policy for so many steps"},
    {"trainer.rollout_data_dir", kAny,
     "texts and rewards of every step are in run.db (tandemctl samples); trainer.save_batch_freq "
     "saves token arrays",
     ""},
    {"trainer.validation_data_dir", kAny,
     "the rewards of a validation are in the run's metrics and report", ""},
    {"trainer.log_val_generations", kAny, "all samples are kept; tandemctl samples shows them", ""},
    {"trainer.val_only", kOff, "a run trains",
     "trainer.val_before_train=true validates before the first step, and tandemctl evaluate "
     "whenever a run is up"},
    {"trainer.default_hdfs_dir", kNone, "files are written to this host's folders",
     "leave it out, and copy trainer.default_local_dir"},
    {"trainer.del_local_ckpt_after_load", kOff, "a checkpoint is kept until newer ones replace it",
     "leave it out; trainer.max_actor_ckpt_to_keep says how many"},
    {"trainer.max_critic_ckpt_to_keep", kAny, kNoCritic, ""},
    {"trainer.esi_redundant_time", kAny, "no instance is told to expire", ""},
    {"trainer.ray_wait_register_center_timeout", kAny, kNoRay, ""},
    {"trainer.use_v1", kAny, "there is one trainer, Tandem's own", ""},
    {"trainer.use_legacy_worker_impl", kAny, "there is one worker, Tandem's own", ""},
    {"trainer.v1", kAny, "the trainer is synchronous", ""},
    {"trainer.v1.trainer_mode", "sync", "the trainer is synchronous", kAsync},
    {"trainer.v1.sampler.custom_sampler.path", kNone, "no code of a user is loaded", kLeaveOut},
    {"trainer.checkpoint_callback_class", kNone, "no code of a user is loaded", kLeaveOut},
    {"ray_init", kAny, kNoRay, ""},
    {"ray_kwargs", kAny, kNoRay, ""},
    {"hydra", kAny, "Hydra's own settings: folders, logs and search paths are the run's own", ""},
    {"transfer_queue", kAny, kNoQueue, ""},
    {"global_profiler", kAny, kNoProfiler, ""},
    {"global_profiler.tool", "nsys|torch|torch_memory|precision_debugger", kNoProfiler,
     "leave it out; there are no NPUs"},
    {"skip", kAny, "rollouts are always generated", ""},
    {"skip.rollout.enable", kOff, "rollouts are always generated", kLeaveOut},
    {"skip.rollout_tq.enable", kOff, "rollouts are always generated", kLeaveOut},
    {"skip.async_rollout.enable", kOff, "rollouts are always generated", kLeaveOut},
    {"distillation", kAny, kNoDistillation, ""},
    {"distillation.enabled", kOff, kNoDistillation, kLeaveOut},
    {"critic", kAny, kNoCritic, ""},
    {"critic.enable", kOff, kNoCritic, "leave it out, with an estimator that needs no critic"},
    {"model_engine", "dp", "weights are sharded as FSDP shards them",
     "use verl's FSDP script of the model"},
    // ---- asynchronous trainers
    {"async_training.partial_rollout", kOff, "samples are whole unless rollout.partial is set",
     "rollout.partial.max_tokens_per_round, until_groups or round_seconds interrupt samples, which "
     "continue in the next step; with rollout.partial.overlap generation continues during training "
     "(docs/guides/partial_rollout.md)"},
    {"async_training.staleness_threshold", "0", "the trainer is synchronous",
     "rollout.partial.max_staleness with rollout.partial.overlap: in whole batches, where verl's "
     "is a share of samples"},
    {"async_training.trigger_parameter_sync_step", "1",
     "weights are synced after every step of data.train_batch_size prompts", kLeaveOut},
    {"async_training.require_batches", "1",
     "a step trains on data.train_batch_size prompts, in updates of actor.ppo_mini_batch_size",
     kLeaveOut},
    {"async_training.use_rollout_log_probs", "true", "that is actor.old_log_prob=rollout",
     "actor.old_log_prob=recompute"},
    {"async_training.compute_prox_log_prob", kOff, "that is actor.old_log_prob=rollout",
     "actor.old_log_prob=recompute"},
    {"async_training.use_trainer_do_validate", kAny, "the rollouts validate", ""},
    {"async_training.checkpoint_engine", kAny, "weight_sync.bucket_mb is the size of a bucket", ""},
    {"async_training", kNone, "the trainer is synchronous",
     "rollout.partial, with rollout.partial.overlap for generation during training "
     "(docs/guides/partial_rollout.md)"},
    {"rollout.total_rollout_steps", kNone, "a step generates its own batch",
     "trainer.total_training_steps, of data.train_batch_size prompts each"},
    {"rollout.total_epochs", kNone, "the trainer counts epochs", "trainer.total_epochs"},
    {"rollout.test_freq", kNone, "the trainer validates", "trainer.test_freq"},
    // ---- data
    {"data.tokenizer", kNone, "the tokenizer is that of model.path", kLeaveOut},
    {"data.use_shm", kAny, "files of data are read where they are", ""},
    {"data.gen_batch_size", kNone,
     "algorithm.filter_groups refills with batches of data.train_batch_size", kLeaveOut},
    {"data.val_batch_size", kAny, "a validation is one batch, and no result depends on it", ""},
    {"data.tool_config_path", kNone, kMultiTurn, kLeaveOut},
    {"data.function_tool_path", kNone, kMultiTurn, kLeaveOut},
    {"data.return_raw_input_ids", kAny, "rewards get the prompt's text", ""},
    {"data.return_raw_chat", kAny,
     "rollouts get the tokens of the chat template, and rewards the prompt's text", ""},
    {"data.return_full_prompt", kAny, "samples always keep the prompt", ""},
    {"data.dataloader_num_workers", kAny, "the data are read once, at the start", ""},
    {"data.filter_overlong_prompts_workers", kAny, "the data are read once, at the start", ""},
    {"data.image_key", kNone, kTextOnly, kTextRemedy},
    {"data.video_key", kNone, kTextOnly, kTextRemedy},
    {"data.audio_key", kNone, kTextOnly, kTextRemedy},
    {"data.image_patch_size", kAny, kNoVision, ""},
    {"data.return_multi_modal_inputs", kAny, kNoVision, ""},
    {"data.mm_processor_kwargs", kAny, kNoVision, ""},
    {"data.trust_remote_code", kAny, "no code of a tokenizer is ever run", ""},
    {"data.custom_cls", kAny, "no code of a user is loaded", ""},
    {"data.custom_cls.path", kNone, "no code of a user is loaded",
     "convert the data with tandemctl data convert, or to JSONL in verl's columns"},
    {"data.sampler", kAny, "no code of a user is loaded", ""},
    {"data.sampler.class_path", kNone, "no code of a user is loaded",
     "leave it out; data.shuffle and data.seed decide the order"},
    {"data.datagen", kAny, "no code of a user is loaded", ""},
    {"data.datagen.path", kNone, "no code of a user is loaded", kLeaveOut},
    // ---- the model
    {"model.hf_config_path", kNone, "config.json is that of model.path", kLeaveOut},
    {"model.tokenizer_path", kNone, "the tokenizer is that of model.path", kLeaveOut},
    {"model.use_shm", kAny, "files of weights are mapped where they are", ""},
    {"model.trust_remote_code", kAny, "no code of a model is ever run", ""},
    {"model.custom_chat_template", kNone, "the chat template is that of model.path",
     "write it into tokenizer_config.json or chat_template.jinja there"},
    {"model.external_lib", kNone, "no code of a model is ever run", kLeaveOut},
    {"model.override_config", "{}", "a model is what its config.json says",
     "change config.json of model.path"},
    {"model.override_config.attn_implementation", kAny, kOwnKernels, ""},
    {"model.enable_activation_offload", kAny,
     "activations stay on the device; model.enable_gradient_checkpointing keeps fewer", ""},
    {"model.use_remove_padding", kAny, "sequences are always packed", ""},
    {"model.use_liger", kAny, kOwnKernels, ""},
    {"model.use_fused_kernels", kAny, kOwnKernels, ""},
    {"model.fused_kernel_options", kAny, kOwnKernels, ""},
    {"model.tiled_mlp", kAny, kPacked, ""},
    {"model.mtp", kAny, kNoMtp, ""},
    {"model.mtp.enable", kOff, kNoMtp, kLeaveOut},
    {"model.mtp.enable_train", kOff, kNoMtp, kLeaveOut},
    {"model.mtp.enable_rollout", kOff, kNoMtp, kLeaveOut},
    {"model.lora.lora_alpha", kNone, "verl's own name is model.lora_alpha", "model.lora.alpha"},
    {"model.lora.lora_rank", kNone, "verl's own name is model.lora_rank", "model.lora.rank"},
    {"model.lora.type", "lora", "adapters are plain LoRA, without DoRA or other variants",
     kLeaveOut},
    {"model.lora.dropout_position", "pre", "dropout is in front of the adapters", kLeaveOut},
    {"model.lora.lora_A_init_method", kAny, "verl reads it with Megatron only", ""},
    {"model.lora.lora_B_init_method", kAny, "verl reads it with Megatron only", ""},
    {"model.lora.a2a_experimental", kAny, "verl reads it with Megatron only", ""},
    {"model.lora.dtype", kAny, "verl reads it with Megatron only", ""},
    {"model.lora.freeze_vision_model", kAny, kNoVision, ""},
    {"model.lora.freeze_vision_projection", kAny, kNoVision, ""},
    {"model.lora.freeze_language_model", kAny, kNoVision, ""},
    // ---- generation
    {"rollout.name", kAny, kOneEngine, ""},
    {"rollout.mode", "sync|async", "rollouts are always servers", "leave it out"},
    {"rollout.tensor_model_parallel_size", "1", kOneDevice, kOneDeviceRemedy},
    {"rollout.data_parallel_size", "1", kOneDevice, kOneDeviceRemedy},
    {"rollout.expert_parallel_size", "1", kOneDevice, kOneDeviceRemedy},
    {"rollout.pipeline_model_parallel_size", "1", kOneDevice, kOneDeviceRemedy},
    {"rollout.moe_tensor_parallel_size", "1", kOneDevice, kOneDeviceRemedy},
    {"rollout.full_determinism", kAny, "a token always depends on seed, sample and position only",
     ""},
    {"rollout.enforce_eager", kAny, "a GPU captures what it can as graphs", ""},
    {"rollout.cudagraph_capture_sizes", kAny, "there are no sizes to choose", ""},
    {"rollout.enable_chunked_prefill", kAny,
     "prefill is always chunked, by rollout.max_num_batched_tokens", ""},
    {"rollout.logprobs_mode", "processed_logprobs",
     "log-probs are those of the distribution that was drawn from", kLeaveOut},
    {"rollout.scheduling_policy", kAny, kOneEngine, ""},
    {"rollout.layered_summon", kAny, "weights are gathered and sent tensor by tensor, always", ""},
    {"rollout.log_prob_micro_batch_size", kAny, kPacked, ""},
    {"rollout.log_prob_micro_batch_size_per_gpu", kAny, kPacked, ""},
    {"rollout.log_prob_use_dynamic_bsz", kAny, kPacked, ""},
    {"rollout.log_prob_max_token_len_per_gpu", kAny, kPacked, ""},
    {"rollout.disable_log_stats", kAny, "tandemctl status shows them", ""},
    {"rollout.do_sample", "true", "training samples are drawn", kLeaveOut},
    {"rollout.over_sample_rate", "0", "a step generates its own batch",
     "rollout.partial.until_groups with a larger rollout.partial.groups_per_round: what is cut "
     "goes "
     "on in the next step"},
    {"rollout.multi_stage_wake_up", kAny,
     "memory for weights returns before that for the KV cache, always", ""},
    {"rollout.engine_kwargs", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.vllm.additional_config", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.vllm.async_scheduling", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.vllm.block_size", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.vllm.compilation_config", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.vllm.cpu_offload_gb", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.vllm.disable_custom_all_reduce", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.vllm.disable_log_requests", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.vllm.disable_log_stats", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.vllm.enable_chunked_prefill", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.vllm.enable_prefix_caching", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.vllm.enforce_eager", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.vllm.gpu_memory_utilization", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.vllm.long_prefill_token_threshold", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.vllm.max_long_partial_prefills", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.vllm.max_num_batched_tokens", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.vllm.max_num_partial_prefills", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.vllm.max_num_seqs", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.vllm.max_seq_len_to_capture", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.vllm.num_gpu_blocks_override", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.vllm.scheduling_policy", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.vllm.seed", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.vllm.swap_space", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.vllm.hf_overrides", kNone, "a model is what its config.json says",
     "change config.json of model.path"},
    {"rollout.engine_kwargs.vllm.rope_scaling", kNone, "a model is what its config.json says",
     "change config.json of model.path"},
    {"rollout.engine_kwargs.vllm.rope_theta", kNone, "a model is what its config.json says",
     "change config.json of model.path"},
    {"rollout.engine_kwargs.vllm.generation_config", kNone, kDrawn,
     "leave it out; rollout.temperature, top_p and top_k are the parameters"},
    {"rollout.engine_kwargs.vllm.override_generation_config", kNone, kDrawn,
     "leave it out; rollout.temperature, top_p and top_k are the parameters"},
    {"rollout.engine_kwargs.vllm.logits_processors", kNone, "no code of a user is loaded",
     kLeaveOut},
    {"rollout.engine_kwargs.vllm.logits_processor_pattern", kNone, "no code of a user is loaded",
     kLeaveOut},
    {"rollout.engine_kwargs.vllm.dtype", kNone, "weights have model.compute_dtype",
     "model.compute_dtype"},
    {"rollout.engine_kwargs.vllm.speculative_config", kNone, kNoMtp, kLeaveOut},
    {"rollout.engine_kwargs.vllm.enable_lora", kNone, "an adapter is trained by model.lora",
     "model.lora.rank"},
    {"rollout.engine_kwargs.vllm.kv_cache_dtype", "auto", "the KV cache has model.compute_dtype",
     kLeaveOut},
    {"rollout.engine_kwargs.vllm.quantization", kNone, "weights have model.compute_dtype",
     kLeaveOut},
    {"rollout.engine_kwargs.sglang.chunked_prefill_size", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.sglang.cuda_graph_bs", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.sglang.cuda_graph_max_bs", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.sglang.disable_cuda_graph", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.sglang.disable_custom_all_reduce", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.sglang.disable_overlap_schedule", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.sglang.disable_radix_cache", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.sglang.enable_dp_attention", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.sglang.enable_torch_compile", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.sglang.log_level", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.sglang.max_prefill_tokens", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.sglang.max_running_requests", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.sglang.mem_fraction_static", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.sglang.num_continuous_decode_steps", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.sglang.random_seed", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.sglang.sampling_backend", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.sglang.schedule_conservativeness", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.sglang.schedule_policy", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.sglang.watchdog_timeout", kAny, kOneEngine, ""},
    {"rollout.engine_kwargs.sglang.json_model_override_args", kNone,
     "a model is what its config.json says", "change config.json of model.path"},
    {"rollout.engine_kwargs.sglang.preferred_sampling_params", kNone, kDrawn,
     "leave it out; rollout.temperature, top_p and top_k are the parameters"},
    {"rollout.engine_kwargs.sglang.enable_custom_logit_processor", kNone,
     "no code of a user is loaded", kLeaveOut},
    {"rollout.engine_kwargs.sglang.dtype", kNone, "weights have model.compute_dtype",
     "model.compute_dtype"},
    {"rollout.engine_kwargs.sglang.speculative_algorithm", kNone, kNoMtp, kLeaveOut},
    {"rollout.engine_kwargs.sglang.sampling_defaults", kNone, kDrawn,
     "leave it out; rollout.temperature, top_p and top_k are the parameters"},
    {"rollout.engine_kwargs.sglang.attention_backend",
     "triton|flashinfer|fa3|torch_native|trtllm_mha", kOwnKernels,
     "leave it out; there are no NPUs"},
    {"rollout.engine_kwargs.sglang.kv_cache_dtype", "auto", "the KV cache has model.compute_dtype",
     kLeaveOut},
    {"rollout.engine_kwargs.sglang.quantization", kNone, "weights have model.compute_dtype",
     kLeaveOut},
    {"rollout.multi_turn", kAny, kMultiTurn, ""},
    {"rollout.multi_turn.enable", kOff, kMultiTurn, kLeaveOut},
    {"rollout.multi_turn.tool_config_path", kNone, kMultiTurn, kLeaveOut},
    {"rollout.multi_turn.function_tool_path", kNone, kMultiTurn, kLeaveOut},
    {"rollout.multi_turn.interaction_config_path", kNone, kMultiTurn, kLeaveOut},
    {"rollout.agent", kAny, kMultiTurn, ""},
    {"rollout.agent.default_agent_loop", "single_turn_agent", kMultiTurn, kLeaveOut},
    {"rollout.agent.agent_loop_config_path", kNone, kMultiTurn, kLeaveOut},
    {"rollout.agent.custom_async_server.path", kNone, kOneEngine, kLeaveOut},
    {"rollout.checkpoint_engine.backend", kAny, "weight_sync.transport says how slots are shared",
     ""},
    {"rollout.checkpoint_engine.engine_kwargs", kAny, "weight_sync.transport has no options", ""},
    {"rollout.checkpoint_engine.custom_backend_module", kAny, "no code of a user is loaded", ""},
    {"actor_rollout_ref.checkpoint_engine", kAny, "weight_sync.bucket_mb is the size of a bucket",
     ""},
    {"rollout.profiler", kAny, kNoProfiler, ""},
    {"rollout.router_config_path", kAny, "the controller deals prompts to rollouts", ""},
    {"rollout.trace", kAny, "all samples are kept; tandemctl samples shows them", ""},
    {"rollout.skip_tokenizer_init", kAny, "rollouts work with tokens", ""},
    {"rollout.skip_rollout", kOff, "rollouts are always generated", kLeaveOut},
    {"rollout.skip_dump_dir", kAny, "rollouts are always generated", ""},
    {"rollout.enable_rollout_routing_replay", kOff, "there is no replay of a router", kLeaveOut},
    {"rollout.moe_load_balance_metrics_interval", kAny, "there is no such metric", ""},
    {"rollout.prometheus", kAny, "tandemctl status and tandemctl steps show the run", ""},
    {"rollout.quantization", kNone, "weights have model.compute_dtype", kLeaveOut},
    {"rollout.quantization_config_file", kNone, "weights have model.compute_dtype", kLeaveOut},
    {"rollout.mtp", kAny, kNoMtp, ""},
    {"rollout.mtp.enable", kOff, kNoMtp, kLeaveOut},
    {"rollout.mtp.enable_rollout", kOff, kNoMtp, kLeaveOut},
    {"rollout.qat", kAny, kNoQat, ""},
    {"rollout.qat.enable", kOff, kNoQat, kLeaveOut},
    {"rollout.disaggregation", kAny, kOneEngine, ""},
    {"rollout.disaggregation.enabled", kOff, "a rollout prefills and decodes", kLeaveOut},
    {"rollout.limit_images", kNone, kTextOnly, kTextRemedy},
    // ---- training
    {"actor_rollout_ref.nccl_timeout", kAny,
     "cluster.rpc_timeout_seconds and cluster.progress_timeout_seconds are the deadlines", ""},
    {"actor.strategy", "fsdp|fsdp2", kSharded, "use verl's FSDP script of the model"},
    {"actor.fsdp_config", kAny, kSharded, ""},
    {"actor.fsdp_config.strategy", "fsdp|fsdp2", kSharded, "use verl's FSDP script of the model"},
    {"actor.fsdp_config.offload_policy", kAny,
     "actor.fsdp_config.param_offload and optimizer_offload say what is in host memory", ""},
    {"actor.fsdp_config.model_dtype", "fp32|float32|bf16|bfloat16",
     "masters are always float32, which is verl's default and more exact than bfloat16", kLeaveOut},
    {"actor.fsdp_config.dtype", "bf16|bfloat16", "model.compute_dtype is bfloat16",
     "model.compute_dtype"},
    {"actor.fsdp_config.mixed_precision", kAny, kPrecision, ""},
    {"actor.fsdp_config.mixed_precision.param_dtype", "bf16|bfloat16", kPrecision,
     "model.compute_dtype"},
    {"actor.fsdp_config.mixed_precision.reduce_dtype", "fp32|float32|bf16|bfloat16",
     "gradients are summed in float32, which is more exact than bfloat16", kLeaveOut},
    {"actor.fsdp_config.wrap_policy", kAny, kSharded, ""},
    {"actor.fsdp_config.ulysses_sequence_parallel_size", "1", kSequenceParallel,
     "set it to 1; a trainer computes whole sequences"},
    {"actor.fsdp_config.seed", kAny, "trainer.seed, data.seed and rollout.seed are the seeds", ""},
    {"actor.fsdp_config.full_determinism", kAny, "sums have a fixed order, always", ""},
    {"actor.fsdp_config.qat.enable", kOff, kNoQat, kLeaveOut},
    {"actor.fsdp_config.turbo_config", kNone, "there is no fsdp_turbo", kFsdpRemedy},
    {"actor.ppo_micro_batch_size", kAny, kPacked, ""},
    {"actor.ppo_micro_batch_size_per_gpu", kAny, kPacked, ""},
    {"actor.use_dynamic_bsz", kAny, kPacked, ""},
    {"actor.rollout_n", kAny, "that is rollout.n", ""},
    {"actor.calculate_entropy", kAny, "the entropy is always computed and logged", ""},
    {"actor.entropy_checkpointing", kAny, kNoLogits, ""},
    {"actor.sum_pi_squared_checkpointing", kAny, kNoLogits, ""},
    {"actor.entropy_from_logits_with_chunking", kAny, kNoLogits, ""},
    {"actor.entropy_from_logits_chunk_size", kAny, kNoLogits, ""},
    {"actor.data_loader_seed", kAny, "mini-batches are drawn with trainer.seed", ""},
    {"actor.ulysses_sequence_parallel_size", "1", kSequenceParallel,
     "set it to 1; a trainer computes whole sequences"},
    {"actor.use_prefix_grouper", kAny, kPacked, ""},
    {"actor.pad_to_length", kAny, "sequences are always packed", ""},
    {"actor.use_remove_padding", kAny, "sequences are always packed", ""},
    {"actor.use_torch_compile", kAny, kNoCompile, ""},
    {"actor.use_fused_kernels", kAny, kOwnKernels, ""},
    {"actor.use_rollout_log_probs", "true", "that is actor.old_log_prob=rollout",
     "actor.old_log_prob=recompute"},
    {"actor.freeze_vision_tower", kAny, kNoVision, ""},
    {"actor.router_replay", kAny, "there is no replay of a router", ""},
    {"actor.router_replay.mode", "disabled", "there is no replay of a router", kLeaveOut},
    {"actor.qat", kAny, kNoQat, ""},
    {"actor.qat.enable", kOff, kNoQat, kLeaveOut},
    {"actor.profiler", kAny, kNoProfiler, ""},
    {"actor.checkpoint.load_contents", kAny, "all that was saved is loaded", ""},
    {"actor.checkpoint.async_save", kAny, "a checkpoint is complete before the next step", ""},
    {"actor.checkpoint.strict", kAny, "a checkpoint is complete or refused", ""},
    {"actor.optim.optimizer", "adamw", "the optimizer is AdamW", kLeaveOut},
    {"actor.optim.optimizer_impl", "torch.optim", "the optimizer is AdamW, with torch's formula",
     kLeaveOut},
    {"actor.optim.override_optimizer_config", "{}", "the optimizer is AdamW", kLeaveOut},
    {"actor.optim.zero_indexed_step", "true", "the schedule counts from 0", kLeaveOut},
    {"actor.optim.lr_decay_style", "constant", "verl reads it with Megatron only",
     "actor.optim.lr_scheduler_type"},
    {"actor.optim.min_lr", kNone, "verl reads it with Megatron only", "actor.optim.min_lr_ratio"},
    {"actor.megatron", kNone, kMegatron, kFsdpRemedy},
    {"actor.veomni", kNone, "there is no VeOmni; weights are sharded as FSDP shards them",
     kFsdpRemedy},
    {"actor.torchtitan", kNone, "there is no torchtitan; weights are sharded as FSDP shards them",
     kFsdpRemedy},
    {"actor.engine", kNone, "there is no Megatron-Lite; weights are sharded as FSDP shards them",
     kFsdpRemedy},
    // ---- the reference policy
    {"ref", kAny, "the reference policy is model.path, sharded as the actor; there is ref.offload",
     ""},
    {"ref.strategy", "fsdp|fsdp2", kSharded, "use verl's FSDP script of the model"},
    {"ref.fsdp_config.strategy", "fsdp|fsdp2", kSharded, "use verl's FSDP script of the model"},
    {"ref.ulysses_sequence_parallel_size", "1", kSequenceParallel,
     "set it to 1; a trainer computes whole sequences"},
    {"ref.fsdp_config.ulysses_sequence_parallel_size", "1", kSequenceParallel,
     "set it to 1; a trainer computes whole sequences"},
    {"ref.fsdp_config.qat.enable", kOff, kNoQat, kLeaveOut},
    {"ref.fsdp_config.turbo_config", kNone, "there is no fsdp_turbo", kFsdpRemedy},
    {"ref.fsdp_config.dtype", "bf16|bfloat16", "model.compute_dtype is bfloat16",
     "model.compute_dtype"},
    {"ref.fsdp_config.mixed_precision", kAny, kPrecision, ""},
    {"ref.fsdp_config.mixed_precision.param_dtype", "bf16|bfloat16", kPrecision,
     "model.compute_dtype"},
    {"ref.fsdp_config.mixed_precision.buffer_dtype", kAny, kPrecision, ""},
    {"ref.fsdp_config.mixed_precision.reduce_dtype", kAny, kPrecision, ""},
    {"ref.fsdp_config.wrap_policy", kAny, kSharded, ""},
    {"ref.model.path", kNone, "the reference policy is model.path", kLeaveOut},
    {"ref.router_replay.mode", "disabled", "there is no replay of a router", kLeaveOut},
    {"ref.profiler", kAny, kNoProfiler, ""},
    {"ref.use_torch_compile", kAny, kNoCompile, ""},
    {"ref.log_prob_micro_batch_size", kAny, kPacked, ""},
    {"ref.log_prob_micro_batch_size_per_gpu", kAny, kPacked, ""},
    {"ref.log_prob_use_dynamic_bsz", kAny, kPacked, ""},
    {"ref.log_prob_max_token_len_per_gpu", kAny, kPacked, ""},
    {"ref.megatron", kNone, kMegatron, kFsdpRemedy},
    {"ref.veomni", kNone, "there is no VeOmni; weights are sharded as FSDP shards them",
     kFsdpRemedy},
    {"ref.torchtitan", kNone, "there is no torchtitan; weights are sharded as FSDP shards them",
     kFsdpRemedy},
    {"ref.engine", kNone, "there is no Megatron-Lite; weights are sharded as FSDP shards them",
     kFsdpRemedy},
    // ---- algorithm
    {"algorithm.filter_groups.max_inflight_gen_batches", kAny, "one batch is generated at a time",
     ""},
    {"algorithm.use_pf_ppo", kOff, "there is no PF-PPO", kLeaveOut},
    {"algorithm.pf_ppo", kAny, "there is no PF-PPO", ""},
    // ---- rewards
    {"reward_model", kAny, kRewardModel, ""},
    {"reward_model.enable", kOff, kRewardModel, kRewardRemedy},
    {"reward_model.reward_manager", "naive|dapo|prime",
     "reward.function, and reward.overlong_buffer for the term of dapo", kRewardRemedy},
    {"reward_model.sandbox_fusion.url", kNone, "no code of a response is run", kRewardRemedy},
    {"reward_model.reward_loop_module_path", kNone, "no code of a user is loaded", kRewardRemedy},
    {"reward_manager", kAny, "reward.function picks the function", ""},
    {"reward_manager.source", "register", "no code of a user is loaded", kRewardRemedy},
    {"reward_manager.name", "naive|dapo|prime",
     "reward.function, and reward.overlong_buffer for the term of dapo", kRewardRemedy},
    {"reward_manager.module.path", kNone, "no code of a user is loaded", kRewardRemedy},
    {"custom_reward_function", kAny, "no code of a user is loaded", ""},
    {"custom_reward_function.path", kNone, "no code of a user is loaded", kRewardRemedy},
    {"sandbox_fusion", kAny, "no code of a response is run", ""},
    {"sandbox_fusion.url", kNone, "no code of a response is run", kRewardRemedy},
    {"reward.num_workers", kAny, "rewards are computed by the controller", ""},
    {"reward.custom_reward_function", kAny, "no code of a user is loaded", ""},
    {"reward.custom_reward_function.path", kNone, "no code of a user is loaded", kRewardRemedy},
    {"reward.reward_manager", kAny, "reward.function picks the function", ""},
    {"reward.reward_manager.source", "register", "no code of a user is loaded", kRewardRemedy},
    {"reward.reward_manager.name", "naive|dapo|prime",
     "reward.function, and reward.overlong_buffer for the term of dapo", kRewardRemedy},
    {"reward.reward_manager.module.path", kNone, "no code of a user is loaded", kRewardRemedy},
    {"reward.reward_model", kAny, kRewardModel, ""},
    {"reward.reward_model.enable", kOff, kRewardModel, kRewardRemedy},
    {"reward.sandbox_fusion", kAny, "no code of a response is run", ""},
    {"reward.sandbox_fusion.url", kNone, "no code of a response is run", kRewardRemedy},
};

// Sections whose own rule is about their known keys alone. A key of an engine or of FSDP that is
// not known may change the result, and one that is mistyped would be lost without a word.
constexpr std::string_view kClosedSections[] = {"actor.fsdp_config",
                                                "actor.fsdp_config.mixed_precision",
                                                "ref",
                                                "ref.fsdp_config",
                                                "ref.fsdp_config.mixed_precision",
                                                "rollout.engine_kwargs",
                                                "rollout.engine_kwargs.sglang",
                                                "rollout.engine_kwargs.trtllm",
                                                "rollout.engine_kwargs.vllm",
                                                "rollout.multi_turn",
                                                "rollout.agent"};

constexpr char kNoTracker[] = "that tracker is not written; jsonl and tensorboard have all metrics";

constexpr VerlValue kValues[] = {
    {"trainer.logger", "wandb", "", kNoTracker},
    {"trainer.logger", "swanlab", "", kNoTracker},
    {"trainer.logger", "mlflow", "", kNoTracker},
    {"trainer.logger", "vemlp_wandb", "", kNoTracker},
    {"trainer.logger", "clearml", "", kNoTracker},
    {"trainer.logger", "trackio", "", kNoTracker},
    {"trainer.logger", "file", "jsonl", "verl's file is our jsonl"},
    {"actor.checkpoint.save_contents", "model", "", "the float32 weights are always saved"},
    {"actor.checkpoint.save_contents", "extra", "", "step and position are always saved"},
    {"rollout.load_format", "dummy_hf", "dummy", "the load format is dummy"},
    {"rollout.load_format", "dummy_dtensor", "dummy", "the load format is dummy"},
    {"rollout.load_format", "dummy_megatron", "dummy", "the load format is dummy"},
};

bool IsTypeName(std::string_view key) { return key.ends_with("._target_"); }

// Hydra's class of a section: verl's own, and read by nothing here.
constexpr VerlRule kTypeName = {"_target_", kAny, "the Python class of a section", ""};

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

using RulesByKey = std::unordered_map<std::string_view, const VerlRule*>;

const RulesByKey& RulesOfKeys() {
  static const auto* const rules = [] {
    auto* all = new RulesByKey;
    for (const VerlRule& rule : kRules) all->emplace(rule.key, &rule);
    return all;
  }();
  return *rules;
}

// The innermost closed section around `key`; empty: none is.
std::string_view InnermostClosedSection(std::string_view key) {
  for (size_t dot = key.rfind('.'); dot != std::string_view::npos; dot = key.rfind('.')) {
    key = key.substr(0, dot);
    if (std::find(std::begin(kClosedSections), std::end(kClosedSections), key) !=
        std::end(kClosedSections)) {
      return key;
    }
  }
  return "";
}

// verl's own name of a canonical key of a closed section.
std::string KnownName(std::string_view key) { return "actor_rollout_ref." + std::string(key); }

// Whether a key of a closed section is one of verl's, a section of such keys, or inside of a key
// that is known and holds others.
bool IsKnownIn(std::string_view section, std::string_view key) {
  const std::string within = KnownName(key) + ".";
  for (const VerlKey& known : KnownVerlKeys()) {
    if (known.key.starts_with(within)) return true;
  }
  for (; key.size() > section.size(); key = key.substr(0, key.rfind('.'))) {
    if (RulesOfKeys().contains(key) || FindVerlKey(KnownName(key)) != nullptr) return true;
  }
  return false;
}

}  // namespace

std::span<const VerlRule> VerlRules() { return kRules; }

const VerlRule* FindVerlRule(std::string_view key) {
  const RulesByKey& rules = RulesOfKeys();
  if (IsTypeName(key)) return &kTypeName;
  const std::string_view closed = InnermostClosedSection(key);
  if (!closed.empty() && !IsKnownIn(closed, key)) return nullptr;
  while (true) {
    if (const auto found = rules.find(key); found != rules.end()) return found->second;
    const size_t dot = key.rfind('.');
    if (dot == std::string_view::npos) return nullptr;
    key = key.substr(0, dot);
  }
}

std::vector<std::string> VerlKeysBeside(std::string_view key) {
  std::vector<std::string> keys;
  const std::string_view section = InnermostClosedSection(key);
  if (section.empty()) return keys;
  const std::string within = std::string(section) + ".";
  for (const VerlRule& rule : kRules) {
    if (rule.key.starts_with(within)) keys.emplace_back(rule.key);
  }
  const std::string verls = KnownName(within);
  for (const VerlKey& known : KnownVerlKeys()) {
    if (known.key.starts_with(verls))
      keys.push_back(within + std::string(known.key.substr(verls.size())));
  }
  return keys;
}

bool HasVerlRules(std::string_view section) {
  if (FindVerlRule(section) != nullptr) return true;
  const std::string within = std::string(section) + ".";
  return std::any_of(std::begin(kRules), std::end(kRules),
                     [&within](const VerlRule& rule) { return rule.key.starts_with(within); });
}

bool VerlRuleAccepts(const VerlRule& rule, std::string_view value) {
  if (rule.accepts == kAny) return true;
  const std::string wanted = Lower(value);
  for (const std::string_view nothing : {"", "null", "none", "[]", "{}"}) {
    if (wanted == nothing) return true;
  }
  for (std::string_view rest = rule.accepts; !rest.empty();) {
    const size_t bar = std::min(rest.find('|'), rest.size());
    const std::string_view choice = rest.substr(0, bar);
    if (wanted == choice || wanted == std::string(choice) + ".0") return true;
    rest.remove_prefix(std::min(bar + 1, rest.size()));
  }
  return false;
}

std::span<const VerlValue> VerlValues() { return kValues; }

const VerlValue* FindVerlValue(std::string_view key, std::string_view value) {
  for (const VerlValue& spelled : kValues) {
    if (spelled.key == key && spelled.value == value) return &spelled;
  }
  return nullptr;
}

}  // namespace tandem
