// The shapes of SmolLM2-135M.
#pragma once

#include "common/ops/ops_types.h"

namespace tandem::bench {

inline constexpr DType kBf16 = DType::kBFloat16;
inline constexpr int64_t kHidden = 576, kFfn = 1536, kVocab = 49152;
inline constexpr AttentionShape kAttention = {9, 3, 64};
inline constexpr float kEps = 1e-5f;
// Rows of a decoding step of 64 sequences, and of a micro-batch.
inline constexpr int64_t kDecodeRows = 64, kTrainRows = 2048;

struct WeightShape {
  int64_t n, k;
};
// Output, qkv, gate and up, down projection.
inline constexpr WeightShape kLayerWeights[] = {
    {kHidden, kHidden}, {960, kHidden}, {2 * kFfn, kHidden}, {kHidden, kFfn}};

}  // namespace tandem::bench
