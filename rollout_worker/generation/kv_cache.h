// The pool of KV blocks: one region whose addresses never change, divided equally among the layers.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <absl/status/statusor.h>

#include "common/device/device.h"
#include "common/device/ledger.h"
#include "common/memory/memory_formulas.h"
#include "common/model_spec/model_spec.h"
#include "common/ops/ops_types.h"

namespace tandem {

// Returns KvPoolBlocks (common/memory/memory_formulas.h) for the plan. ResourceExhausted: the pool
// cannot hold one sequence of max_model_len tokens; the message names the bytes and the config keys
// to change.
absl::StatusOr<int64_t> PlanKvBlocks(const ModelSpec& spec, DType dtype, const KvPoolPlan& plan);

// Not thread-safe: used by the engine thread.
class KvCache {
 public:
  // Reserves addresses under the tag kv_cache; pages are allocated by Map.
  static absl::StatusOr<std::unique_ptr<KvCache>> Create(
      Device* device, const ModelSpec& spec, DType dtype, int64_t num_blocks, Ledger* ledger);

  absl::Status Map() { return region_->Map(); }  // blocks are zero when mapped
  absl::Status Release() { return region_->Release(); }
  bool mapped() const { return region_->mapped(); }
  int64_t bytes() const { return region_->bytes(); }
  int64_t resident_bytes() const { return region_->ResidentBytes(); }
  int64_t num_blocks() const { return num_blocks_; }
  const std::byte* data() const { return region_->data(); }

  // The block that padding rows use, in addition to num_blocks, on devices that record steps.
  const int32_t* spare_block() const { return &spare_block_; }

  // One entry per layer. The addresses never change; the memory is readable while mapped.
  const std::vector<KvLayer>& layers() const { return layers_; }

 private:
  KvCache() = default;
  std::unique_ptr<MemoryRegion> region_;
  std::vector<KvLayer> layers_;
  int64_t num_blocks_ = 0;
  int32_t spare_block_ = 0;
};

}  // namespace tandem
