#include "controller/plan/plan_input.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/config/config.h"
#include "common/formats/hf_checkpoint.h"
#include "common/lora/lora_spec.h"
#include "common/process/cores.h"
#include "controller/plan/memory_amount.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

Recompute ParseRecompute(const std::string& text) {
  if (text == "true") return Recompute::kAlways;
  return text == "false" ? Recompute::kNever : Recompute::kAuto;
}

Reshard ParseReshard(const std::string& text) {
  if (text == "true") return Reshard::kAlways;
  return text == "false" ? Reshard::kNever : Reshard::kAuto;
}

// The number of adapter elements on rank 0, with each matrix sharded on dim 0.
int64_t ShardElements(const LoraSpec& lora, int64_t ranks) {
  int64_t elements = 0;
  for (const LoraTarget& target : lora.targets) {
    elements += ShardRows(lora.rank, 0, ranks).rows() * target.in;
    elements += ShardRows(target.out, 0, ranks).rows() * lora.rank;
  }
  return elements;
}

bool Filters(double top_p, int64_t top_k) { return top_p < 1 || top_k > 0; }

TrainerMemoryOptions MakeTrainerMemoryOptions(const ModelSpec& spec, const v1::Config& config) {
  const v1::FsdpConfig& fsdp = config.actor().fsdp_config();
  const bool float32 = config.model().compute_dtype() == "float32";
  TrainerMemoryOptions options;
  options.pairs = std::max<int64_t>(1, config.cluster().trainers());
  options.element_bytes = float32 ? 4 : 2;
  options.reference = NeedsReference(config);
  options.offload_master = fsdp.param_offload() && !float32;
  options.offload_moments = fsdp.optimizer_offload();
  options.offload_reference = config.ref().offload();
  options.gather.reshard = ParseReshard(fsdp.reshard_after_forward());
  options.gather.prefetch = fsdp.forward_prefetch();
  // Targets that the model lacks are reported elsewhere (run_inputs.h).
  if (const auto lora = MakeLoraSpec(spec, LoraOptionsOf(config)); lora.ok()) {
    options.adapters = lora->parameters();
    options.adapter_shard = ShardElements(*lora, options.pairs);
    const auto base = HfCheckpoint::Open(config.model().path(), spec);
    if (base.ok()) {  // else only config.json is known, and bfloat16 is the usual dtype
      options.base_element_bytes = static_cast<int64_t>(DTypeBytes((*base)->exact_dtype()));
    }
  }
  return options;
}

}  // namespace

ThreadsByRole ComputeThreads(const v1::Config& config) {
  const Topology topology = TopologyOf(config);
  const int64_t cores = std::ssize(AllowedCores());
  return {.trainer = ComputeThreadsOf(config, topology.trainers_per_host(), cores),
          .rollout = ComputeThreadsOf(config, topology.rollouts_per_host(), cores)};
}

bool PlansForGpu(const v1::Config& config) { return config.trainer().device() == "cuda"; }

absl::StatusOr<int64_t> PlannedDeviceBytes(const std::string& flag,
                                           const v1::Config& config,
                                           int64_t (*share_of_host)(int devices)) {
  if (!flag.empty()) {
    const absl::StatusOr<int64_t> bytes = ParseBytes(flag);
    TANDEM_RETURN_IF_ERROR(Annotate(bytes.status(), "--device-memory"));
    return *bytes;
  }
  if (!PlansForGpu(config)) return share_of_host(TopologyOf(config).devices_per_host());
  return InvalidArgument(
      "trainer.device=cuda: this command queries no GPU driver; give the memory of one GPU with "
      "--device-memory, such as 80GiB (nvidia-smi shows it)");
}

MemoryPlanInput MakeMemoryPlanInput(const ModelSpec& spec,
                                    const v1::Config& config,
                                    int64_t device_bytes) {
  const v1::Rollout& rollout = config.rollout();
  const bool cuda = PlansForGpu(config);
  MemoryPlanInput input;
  input.device_bytes = device_bytes;
  // Targets that the model lacks are reported elsewhere (run_inputs.h).
  const LoraOptions lora = LoraOptionsOf(config);
  if (const auto with = WithAdapters(spec, lora); with.ok()) {
    input.adapters = with->adapters;
    input.adapters_drop = lora.dropout > 0;
  }
  input.host_is_device = !cuda;
  input.threads = ComputeThreads(config);
  input.apart = TopologyOf(config).apart;
  input.max_num_seqs = rollout.max_num_seqs();
  input.max_model_len = rollout.max_model_len();
  input.batched_tokens = rollout.max_num_batched_tokens();
  input.memory_utilization = rollout.gpu_memory_utilization();
  input.filtered = Filters(rollout.top_p(), rollout.top_k()) ||
                   (rollout.val_kwargs().do_sample() &&
                    Filters(rollout.val_kwargs().top_p(), rollout.val_kwargs().top_k()));
  input.free_cache_engine = rollout.free_cache_engine();
  input.sleep_level = static_cast<int>(rollout.sleep_level());
  input.trainer = MakeTrainerMemoryOptions(spec, config);
  input.train_limits = TrainLimits(config);
  input.score_limits = ScoreLimits(config);
  input.recompute = ParseRecompute(config.model().enable_gradient_checkpointing());
  input.old_log_probs = config.actor().old_log_prob() == "recompute";
  input.compare = HasComparePass(config);
  input.compares_next = input.compare && config.trainer().off_policy_steps() > 0;
  input.probe_limits = ProbeLimits(config);
  input.probe = config.weight_sync().probe();
  input.check = config.weight_sync().check() != "off";
  input.export_model = SavesContent(config, "hf_model");
  input.slot_bytes = BucketBytes(config, cuda);
  input.rollout_slots = SyncMayUseTcp(config);
  input.slots = SyncIsDirect(config) ? 0 : config.weight_sync().slots();
  return input;
}

}  // namespace tandem
