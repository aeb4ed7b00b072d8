#include "rollout_worker/generation/kv_cache.h"

#include "common/base/status.h"

namespace tandem {
namespace {
constexpr double kMiB = 1024.0 * 1024.0;
}

absl::StatusOr<int64_t> PlanKvBlocks(const ModelSpec& spec, DType dtype, const KvPoolPlan& plan) {
  const auto element_bytes = static_cast<int64_t>(DTypeBytes(dtype));
  const int64_t per_sequence = KvBlocksFor(plan.max_model_len);
  const int64_t fitting = FittingKvBlocks(spec, element_bytes, plan);
  if (fitting < per_sequence) {
    const int64_t block_bytes = KvBlockBytesOfAllLayers(spec, element_bytes);
    return MakeStatus(
        absl::StatusCode::kResourceExhausted,
        "the KV pool cannot hold one sequence of rollout.max_model_len={} tokens: it needs {} "
        "blocks of {:.2f} MiB, and next to {:.0f} MiB of weights only {} fit in "
        "rollout.gpu_memory_utilization={:g} of {:.0f} MiB; raise that key, lower "
        "rollout.max_model_len, or run fewer pairs on this host",
        plan.max_model_len, per_sequence, static_cast<double>(block_bytes) / kMiB,
        static_cast<double>(plan.weight_bytes) / kMiB, fitting, plan.memory_utilization,
        static_cast<double>(plan.device_bytes) / kMiB);
  }
  return KvPoolBlocks(spec, element_bytes, plan);
}

absl::StatusOr<std::unique_ptr<KvCache>> KvCache::Create(
    Device* device, const ModelSpec& spec, DType dtype, int64_t num_blocks, Ledger* ledger) {
  std::unique_ptr<KvCache> cache(new KvCache);
  cache->num_blocks_ = num_blocks;
  cache->spare_block_ = static_cast<int32_t>(num_blocks);
  const int64_t held = num_blocks + (device->is_host() ? 0 : 1);
  const int64_t layer_bytes =
      held * KvBlockLayerBytes(spec, static_cast<int64_t>(DTypeBytes(dtype)));
  TANDEM_ASSIGN_OR_RETURN(cache->region_,
                          device->Reserve("kv_cache", spec.num_layers * layer_bytes, ledger));
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    cache->layers_.push_back({cache->region_->data() + layer * layer_bytes, held});
  }
  return cache;
}

}  // namespace tandem
