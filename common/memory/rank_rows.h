// Scratch of adapters beside their weights on a GPU, which the ops (common/ops/cuda/adapters.h) and
// planning (common/memory/cuda_memory.h) must agree on.
#pragma once

#include <cstdint>

namespace tandem {

// Bytes of `rows` rows of a product's parts, each with `rank` fp32 values: A x, or a gradient of
// it.
constexpr int64_t RankRowsBytes(int64_t rows, int64_t parts, int64_t rank) {
  return rows * parts * rank * 4;
}

}  // namespace tandem
