// Bytes that a model needs, as plain functions of its spec: what the memory plan adds up before a
// run. All results are bytes unless the name says otherwise.
#pragma once

#include <cstdint>

#include "common/model_spec/model_spec.h"
#include "common/types/kv_block.h"

namespace tandem {

// K and V of one token, all layers.
int64_t KvBytesPerToken(const ModelSpec& spec, int64_t element_bytes = 2);
// K and V of one block of kKvBlockTokens tokens in one layer.
int64_t KvBlockLayerBytes(const ModelSpec& spec, int64_t element_bytes = 2);
// The same over all layers: what one more block of the pool costs.
int64_t KvBlockBytes(const ModelSpec& spec, int64_t element_bytes = 2);
// Blocks that one sequence of `tokens` occupies.
int64_t KvBlocksFor(int64_t tokens);

// Elements of one decoder layer, of everything outside the layers, and of the largest tensor there.
int64_t LayerParameters(const ModelSpec& spec);
int64_t GlobalParameters(const ModelSpec& spec);
int64_t EmbeddingParameters(const ModelSpec& spec);

// Rows [begin, end) of a tensor's dim 0 that `rank` of `world` owns (FSDP2: equal chunks rounded
// up, the last ranks may own fewer or none).
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t rows() const { return end - begin; }
};
RowRange ShardRows(int64_t rows, int64_t rank, int64_t world);
// Elements that `rank` owns over all tensors.
int64_t ShardParameters(const ModelSpec& spec, int64_t rank, int64_t world);

// The whole model in the compute dtype.
int64_t WeightBytes(const ModelSpec& spec, int64_t element_bytes = 2);
// Per rank: fp32 master, its rounding to the compute dtype, fp32 gradient shard, AdamW's two fp32
// moments.
int64_t MasterBytes(const ModelSpec& spec, int64_t rank, int64_t world);
int64_t ComputeShardBytes(const ModelSpec& spec,
                          int64_t rank,
                          int64_t world,
                          int64_t element_bytes = 2);
int64_t GradientShardBytes(const ModelSpec& spec, int64_t rank, int64_t world);
int64_t OptimizerBytes(const ModelSpec& spec, int64_t rank, int64_t world);

// What a trainer may hold while its rollout generates: the rest of the device, less a tenth for
// everything that no ledger counts.
int64_t TrainerKeptBytes(int64_t device_bytes, double rollout_utilization);
// How much of that gathered weights may take to stay for backward.
int64_t KeptGatherBytes(int64_t kept_bytes);

// What a training forward keeps per token for its backward. With recompute: the bf16 input of each
// layer. Without: also both norms' outputs, q, k, v, attention output, residual, gate, up and their
// product, all bf16, and the fp32 log-sum-exp per head.
int64_t ActivationBytesPerToken(const ModelSpec& spec, bool recompute);
// fp32 logits of one token.
int64_t LogitBytesPerToken(const ModelSpec& spec);

// A checkpoint on disk: fp32 master and two moments beside the bf16 export (14 bytes a parameter).
int64_t CheckpointBytes(const ModelSpec& spec);

}  // namespace tandem
