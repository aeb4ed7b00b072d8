// The pool of KV blocks: one region whose addresses never change, cut in equal parts per layer.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <absl/status/statusor.h>

#include "common/device/ledger.h"
#include "common/device/memory_region.h"
#include "common/model_spec/model_spec.h"
#include "common/ops/ops_types.h"

namespace tandem {

// What decides the size of the pool.
struct KvPoolPlan {
  double memory_utilization = 0.5;  // share of the device for weights and KV
  int64_t device_bytes = 0;
  int64_t weight_bytes = 0;
  int64_t max_num_seqs = 1;
  int64_t max_model_len = 1;  // tokens
};

// Bytes of one block over all layers.
int64_t KvPoolBlockBytes(const ModelSpec& spec, DType dtype);

// max_num_seqs sequences of max_model_len tokens, or what fits beside the weights, if that is less.
// ResourceExhausted when it cannot hold one such sequence: the message has the bytes and the keys
// to change.
absl::StatusOr<int64_t> PlanKvBlocks(const ModelSpec& spec, DType dtype, const KvPoolPlan& plan);

// Not thread-safe: the engine thread's.
class KvCache {
 public:
  // Reserves addresses; no pages until Map. Tag kv_cache.
  static absl::StatusOr<std::unique_ptr<KvCache>> Create(const ModelSpec& spec,
                                                         DType dtype,
                                                         int64_t num_blocks,
                                                         Ledger* ledger);

  absl::Status Map() { return region_->Map(); }  // all blocks are zero
  absl::Status Release() { return region_->Release(); }
  bool mapped() const { return region_->mapped(); }
  int64_t bytes() const { return region_->bytes(); }
  int64_t resident_bytes() const { return region_->ResidentBytes(); }
  int64_t num_blocks() const { return num_blocks_; }
  const std::byte* data() const { return region_->data(); }

  // One entry per layer; valid for life, readable while mapped.
  const std::vector<KvLayer>& layers() const { return layers_; }
  // Copies a block's bytes in every layer.
  void CopyBlock(int32_t from, int32_t to);

 private:
  KvCache() = default;
  std::unique_ptr<MemoryRegion> region_;
  std::vector<KvLayer> layers_;
  int64_t num_blocks_ = 0;
  int64_t block_bytes_ = 0;  // in one layer
};

}  // namespace tandem
