// Dropout masks of rows (adapter_dropout.h), for forward and backward. They are recomputed wherever
// they are needed, with integers only, so they are the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/ops/adapter_dropout.h"

namespace tandem {

// How many rows have their dropped copy, or their fp32 sums, in scratch at a time.
constexpr int64_t kDroppedRows = 256;

// out [cols] = in [cols] with dropped elements set to zero; not scaled. Elements of 2 or 4 bytes.
void CopyKept(const AdapterDropout& dropout,
              uint64_t row_key,
              int64_t module,
              const std::byte* in,
              int64_t cols,
              int64_t element_bytes,
              std::byte* out);

// sums [cols] += d [cols] for kept elements. As for adapters without dropout, a d below the
// smallest normal number leaves the sum unchanged, including its sign.
void AddKept(const AdapterDropout& dropout,
             uint64_t row_key,
             int64_t module,
             const float* d,
             int64_t cols,
             float* sums);

}  // namespace tandem
