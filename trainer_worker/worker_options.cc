#include "trainer_worker/worker_options.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/config/config.h"
#include "common/device/device_memory.h"
#include "common/memory/memory_formulas.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

absl::StatusOr<Recompute> ParseRecompute(const std::string& text) {
  if (text == "auto") return Recompute::kAuto;
  if (text == "true") return Recompute::kAlways;
  if (text == "false") return Recompute::kNever;
  return InvalidArgument("model.enable_gradient_checkpointing is \"{}\"; use auto, true or false",
                         text);
}

absl::StatusOr<Reshard> ParseReshard(const std::string& text) {
  if (text == "auto") return Reshard::kAuto;
  if (text == "true") return Reshard::kAlways;
  if (text == "false") return Reshard::kNever;
  return InvalidArgument(
      "actor.fsdp_config.reshard_after_forward is \"{}\"; use auto, true or false", text);
}

PolicyLossOptions MakeLossOptions(const v1::Config& config) {
  const v1::Actor& actor = config.actor();
  PolicyLossOptions loss;
  if (const auto& correction = config.algorithm().rollout_correction(); correction.bypass_mode()) {
    loss.bypass = {.correction = RolloutCorrectionOf(config), .loss_type = correction.loss_type()};
  }
  loss.loss_mode = actor.policy_loss().loss_mode();
  loss.tau_pos = actor.tau_pos();
  loss.tau_neg = actor.tau_neg();
  if (actor.policy_loss().dro_beta() > 0) loss.dro_beta = actor.policy_loss().dro_beta();
  loss.clip_cov_ratio = actor.policy_loss().clip_cov_ratio();
  loss.clip_cov_lb = actor.policy_loss().clip_cov_lb();
  loss.clip_cov_ub = actor.policy_loss().clip_cov_ub();
  loss.kl_cov_ratio = actor.policy_loss().kl_cov_ratio();
  loss.ppo_kl_coef = actor.policy_loss().ppo_kl_coef();
  loss.clip_ratio_low = actor.clip_ratio_low();
  loss.clip_ratio_high = actor.clip_ratio_high();
  loss.clip_ratio_c = actor.clip_ratio_c();
  loss.use_kl_loss = actor.use_kl_loss();
  loss.kl_loss_coef = actor.kl_loss_coef();
  loss.kl_loss_type = actor.kl_loss_type();
  loss.entropy_coeff = actor.entropy_coeff();
  return loss;
}

absl::StatusOr<OptimizerOptions> MakeOptimizerOptions(const v1::Actor& actor) {
  const v1::Optim& optim = actor.optim();
  OptimizerOptions options;
  options.adamw.beta1 = optim.betas_size() > 0 ? optim.betas(0) : 0.9;
  options.adamw.beta2 = optim.betas_size() > 1 ? optim.betas(1) : 0.999;
  options.adamw.eps = optim.eps();
  options.adamw.weight_decay = optim.weight_decay();
  options.schedule.type = optim.lr_scheduler_type();
  options.schedule.lr = optim.lr();
  options.schedule.total_steps = std::max<int64_t>(0, optim.total_training_steps());
  options.schedule.warmup_steps = WarmupSteps(
      optim.lr_warmup_steps(), optim.lr_warmup_steps_ratio(), options.schedule.total_steps);
  options.schedule.min_lr_ratio = optim.min_lr_ratio();
  options.schedule.num_cycles = optim.num_cycles();
  options.schedule.stable_ratio = optim.stable_ratio();
  if (options.schedule.type != "constant" && options.schedule.total_steps == 0) {
    return InvalidArgument(
        "actor.optim.lr_scheduler_type={} needs actor.optim.total_training_steps, which the "
        "controller fills in: use a controller of this build",
        options.schedule.type);
  }
  options.grad_clip = actor.grad_clip();
  return options;
}

absl::StatusOr<SessionOptions> MakeSessionOptions(const v1::RegisterResponse& registration,
                                                  int64_t gpu_bytes) {
  const v1::Config& config = registration.config();
  SessionOptions session;
  session.model_dir = config.model().path();
  session.vocab_limit = registration.vocab_limit() > 0 ? registration.vocab_limit() : INT64_MAX;
  session.max_sequence_tokens =
      config.rollout().max_model_len() > 0
          ? config.rollout().max_model_len()
          : config.data().max_prompt_length() + config.data().max_response_length();
  session.max_micro_batch_tokens = config.actor().ppo_max_token_len_per_gpu();
  session.train_limits = TrainLimits(config);
  session.score_limits = ScoreLimits(config);
  session.probe_limits = ProbeLimits(config);
  session.allow_off_support = config.rollout().allow_off_support();
  TANDEM_ASSIGN_OR_RETURN(session.recompute,
                          ParseRecompute(config.model().enable_gradient_checkpointing()));
  const v1::FsdpConfig& fsdp = config.actor().fsdp_config();
  TANDEM_ASSIGN_OR_RETURN(session.reshard, ParseReshard(fsdp.reshard_after_forward()));
  session.prefetch = fsdp.forward_prefetch();
  const Topology topology = TopologyOf(config);
  session.device_bytes =
      gpu_bytes > 0 ? gpu_bytes : CpuDeviceMemoryBytes(topology.devices_per_host());
  // Apart no rollout needs a share of the device.
  session.kept_bytes = TrainerKeptBytes(
      session.device_bytes, topology.apart ? 0 : config.rollout().gpu_memory_utilization());
  session.has_own_device = topology.apart;
  session.offload_dir = LocalDirOf(config);
  session.offload_master = config.actor().fsdp_config().param_offload();
  session.offload_reference = config.ref().offload();
  session.offload_moments = config.actor().fsdp_config().optimizer_offload();
  TANDEM_ASSIGN_OR_RETURN(session.optimizer, MakeOptimizerOptions(config.actor()));
  session.lora = LoraOptionsOf(config);
  session.publish.slot_bytes = BucketBytes(config, config.trainer().device() == "cuda");
  session.publish.slots = static_cast<int>(config.weight_sync().slots());
  return session;
}

}  // namespace

absl::StatusOr<TrainerOptions> MakeTrainerOptions(const v1::RegisterResponse& registration,
                                                  int rank,
                                                  int64_t gpu_bytes) {
  const v1::Config& config = registration.config();
  TrainerOptions options;
  TANDEM_ASSIGN_OR_RETURN(options.session, MakeSessionOptions(registration, gpu_bytes));
  options.dtype = config.model().compute_dtype() == "float32" ? DType::kFloat32 : DType::kBFloat16;
  options.rank = rank;
  options.threads = std::max<int>(1, registration.compute_threads());
  options.transport = config.weight_sync().transport();
  options.loss = MakeLossOptions(config);
  options.loss_agg_mode = config.actor().loss_agg_mode();
  const int64_t factor = config.actor().loss_scale_factor();
  options.loss_scale_factor =
      static_cast<double>(factor > 0 ? factor : config.data().max_response_length());
  options.seed = static_cast<uint64_t>(config.trainer().seed());
  options.recompute_old_log_probs = config.actor().old_log_prob() == "recompute";
  options.tolerate_mismatch = RolloutCorrectionOf(config).enabled();
  options.sum_pi_squared = NeedsSumPiSquared(config);
  options.keep_reference = NeedsReference(config);
  options.save_optimizer = SavesContent(config, "optimizer");
  options.save_hf_model = SavesContent(config, "hf_model");
  options.adapter_path = config.model().lora().adapter_path();
  options.rpc_timeout = absl::Seconds(config.cluster().rpc_timeout_seconds());
  options.single_channel = config.cluster().nccl_single_channel();
  return options;
}

CallFolders MakeCallFolders(const v1::Config& config) {
  const std::string& checkpoints = config.trainer().default_local_dir();
  CallFolders folders{
      .sockets = {LocalDirOf(config)}, .loaded = {checkpoints}, .saved = {checkpoints}};
  if (const std::string& resumed = config.trainer().resume_from_path(); !resumed.empty()) {
    folders.loaded.push_back(resumed);
  }
  return folders;
}

}  // namespace tandem
