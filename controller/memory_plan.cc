#include "controller/memory_plan.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/model_spec/memory_formulas.h"

namespace tandem {
namespace {

double Mib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

int64_t Sum(const std::vector<MemoryPlanLine>& lines) {
  int64_t bytes = 0;
  for (const MemoryPlanLine& line : lines) bytes += line.bytes;
  return bytes;
}

// What the trainer gathers into: two groups of weights, or all where they may stay, and one group
// as it comes from the ranks (trainer_worker/weight_gather.h); one tensor for checks.
int64_t GatherBytes(const ModelSpec& spec, const MemoryPlanInput& input) {
  const int64_t all = WeightBytes(spec, input.element_bytes);
  if (input.pairs == 1) return all;
  const int64_t globals = GlobalParameters(spec), layer = LayerParameters(spec);
  const bool resident =
      all <= KeptGatherBytes(TrainerKeptBytes(input.device_bytes, input.memory_utilization));
  return input.element_bytes * ((resident ? spec.parameters() : globals + layer) +
                                std::max(globals, layer) + EmbeddingParameters(spec));
}

int64_t GradientBytes(const ModelSpec& spec, const MemoryPlanInput& input) {
  const int64_t full = input.pairs == 1 ? 0 : 4 * (GlobalParameters(spec) + LayerParameters(spec));
  return GradientShardBytes(spec, 0, input.pairs) + full;
}

// Of a step, everything kept for backward, or the inputs of layers and one layer's.
int64_t ActivationBytes(const ModelSpec& spec, const MemoryPlanInput& input, int64_t others) {
  const int64_t rows = std::min(input.micro_batch_tokens, input.step_tokens);
  const int64_t scale = input.element_bytes / 2;
  const int64_t kept = scale * rows * ActivationBytesPerToken(spec, /*recompute=*/false);
  const int64_t one_layer = kept / spec.num_layers;
  // Gradients of one layer's activations and of its input.
  const int64_t scratch = one_layer + 4 * rows * spec.hidden_size;
  const bool keep = input.recompute == "false" ||
                    (input.recompute == "auto" && kept <= (input.device_bytes - others) / 2);
  const int64_t inputs = scale * rows * ActivationBytesPerToken(spec, /*recompute=*/true);
  return scratch + (keep ? kept : inputs + one_layer);
}

}  // namespace

MemoryPlan PlanMemory(const ModelSpec& spec, const MemoryPlanInput& input) {
  MemoryPlan plan{.device_bytes = input.device_bytes};
  const int64_t weights = WeightBytes(spec, input.element_bytes);
  const auto usable =
      static_cast<int64_t>(static_cast<double>(input.device_bytes) * input.memory_utilization);
  const int64_t wanted = input.max_num_seqs * KvBlocksFor(input.max_model_len) *
                         KvBlockBytes(spec, input.element_bytes);
  const int64_t kv = std::clamp<int64_t>(usable - weights, 0, wanted);
  const int64_t one_layer = input.element_bytes / 2 * input.batched_tokens *
                            ActivationBytesPerToken(spec, /*recompute=*/false) / spec.num_layers;
  const int64_t residuals = 2 * input.element_bytes * input.batched_tokens * spec.hidden_size;
  plan.rollout = {{"weights", weights}, {"kv_cache", kv}, {"activations", one_layer + residuals}};
  const int64_t shard = ComputeShardBytes(spec, 0, input.pairs, input.element_bytes);
  plan.trainer = {{"master", MasterBytes(spec, 0, input.pairs)},
                  {"weights", shard},
                  {"reference", input.reference ? shard : 0},
                  {"gradients", GradientBytes(spec, input)},
                  {"optimizer", OptimizerBytes(spec, 0, input.pairs)},
                  {"gather", GatherBytes(spec, input)},
                  {"bucket", std::min(input.slot_bytes * input.slots, weights)}};
  plan.trainer.push_back({"activations", ActivationBytes(spec, input, Sum(plan.trainer))});
  plan.awake_peak_bytes = Sum(plan.trainer) + Sum(plan.rollout);
  plan.asleep_peak_bytes = plan.awake_peak_bytes - kv;
  return plan;
}

std::string MemoryPlan::Text() const {
  std::string text = fmt::format("memory plan of a pair (device {:.0f} MiB):", Mib(device_bytes));
  for (const MemoryPlanLine& line : rollout) {
    text += fmt::format("\n  rollout {:<12}{:>9.0f} MiB", line.tag, Mib(line.bytes));
  }
  for (const MemoryPlanLine& line : trainer) {
    text += fmt::format("\n  trainer {:<12}{:>9.0f} MiB", line.tag, Mib(line.bytes));
  }
  return text + fmt::format("\n  peak {:.0f} MiB with the KV pool kept, {:.0f} MiB without",
                            Mib(awake_peak_bytes), Mib(asleep_peak_bytes));
}

}  // namespace tandem
