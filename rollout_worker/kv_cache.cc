#include "rollout_worker/kv_cache.h"

#include <algorithm>
#include <cstring>

#include "common/base/status_macros.h"
#include "common/model/weights_view.h"

namespace tandem {
namespace {
constexpr double kMiB = 1024.0 * 1024.0;
}

int64_t KvPoolBlockBytes(const ModelSpec& spec, DType dtype) {
  return spec.num_layers * KvBlockBytes(AttentionShapeOf(spec), dtype);
}

absl::StatusOr<int64_t> PlanKvBlocks(const ModelSpec& spec, DType dtype, const KvPoolPlan& plan) {
  const int64_t block_bytes = KvPoolBlockBytes(spec, dtype);
  const int64_t per_sequence = (plan.max_model_len + kKvBlockTokens - 1) / kKvBlockTokens;
  const auto bound =
      static_cast<int64_t>(plan.memory_utilization * static_cast<double>(plan.device_bytes));
  const int64_t fitting = std::max<int64_t>(0, bound - plan.weight_bytes) / block_bytes;
  if (fitting < per_sequence) {
    return MakeStatus(
        absl::StatusCode::kResourceExhausted,
        "the KV pool cannot hold one sequence of rollout.max_model_len={} tokens: it needs {} "
        "blocks of {:.2f} MiB, and beside {:.0f} MiB of weights there is room for {} in "
        "rollout.gpu_memory_utilization={:g} of {:.0f} MiB; raise that key, lower "
        "rollout.max_model_len, or run fewer pairs on this host",
        plan.max_model_len, per_sequence, static_cast<double>(block_bytes) / kMiB,
        static_cast<double>(plan.weight_bytes) / kMiB, fitting, plan.memory_utilization,
        static_cast<double>(plan.device_bytes) / kMiB);
  }
  return std::min(plan.max_num_seqs * per_sequence, fitting);
}

absl::StatusOr<std::unique_ptr<KvCache>> KvCache::Create(const ModelSpec& spec,
                                                         DType dtype,
                                                         int64_t num_blocks,
                                                         Ledger* ledger) {
  std::unique_ptr<KvCache> cache(new KvCache);
  cache->num_blocks_ = num_blocks;
  cache->block_bytes_ = KvBlockBytes(AttentionShapeOf(spec), dtype);
  const int64_t layer_bytes = num_blocks * cache->block_bytes_;
  TANDEM_ASSIGN_OR_RETURN(cache->region_,
                          MemoryRegion::Reserve("kv_cache", spec.num_layers * layer_bytes, ledger));
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    cache->layers_.push_back({cache->region_->data() + layer * layer_bytes, num_blocks});
  }
  return cache;
}

void KvCache::CopyBlock(int32_t from, int32_t to) {
  const auto bytes = static_cast<size_t>(block_bytes_);
  for (const KvLayer& layer : layers_) {
    std::memcpy(layer.base + to * block_bytes_, layer.base + from * block_bytes_, bytes);
  }
}

}  // namespace tandem
