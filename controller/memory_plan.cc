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

}  // namespace

MemoryPlan PlanMemory(const ModelSpec& spec, const MemoryPlanInput& input) {
  MemoryPlan plan{.device_bytes = input.device_bytes};
  const int64_t weights = WeightBytes(spec);
  const auto usable =
      static_cast<int64_t>(static_cast<double>(input.device_bytes) * input.memory_utilization);
  const int64_t wanted = input.max_num_seqs * KvBlocksFor(input.max_model_len) * KvBlockBytes(spec);
  const int64_t kv = std::clamp<int64_t>(usable - weights, 0, wanted);
  plan.rollout = {{"weights", weights}, {"kv_cache", kv}};
  const int64_t transient =
      std::max(2 * GatherLayerBytes(spec) + GradientLayerBytes(spec), GatherEmbeddingBytes(spec));
  plan.trainer = {{"master", MasterBytes(spec, 0, input.pairs)},
                  {"compute", ComputeShardBytes(spec, 0, input.pairs)},
                  {"gradients", GradientShardBytes(spec, 0, input.pairs)},
                  {"optimizer", OptimizerBytes(spec, 0, input.pairs)},
                  {"gather", transient},
                  {"activations", input.micro_batch_tokens * ActivationBytesPerToken(spec, true)},
                  {"bucket", std::min(input.slot_bytes * input.slots, weights)}};
  plan.asleep_peak_bytes = Sum(plan.trainer) + weights;
  plan.awake_peak_bytes = plan.asleep_peak_bytes + kv;
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
