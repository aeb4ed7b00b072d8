// Dropout's masks over rows (adapter_dropout.h), for forward and backward. They are made anew
// wherever they are needed: integers alone, so the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/ops/adapter_dropout.h"

namespace tandem {

// Rows whose dropped copy, or fp32 sums, are in scratch at a time.
constexpr int64_t kDroppedRows = 256;

// out [cols] = in [cols] with dropped elements as zero; not scaled. Elements of 2 or 4 bytes.
void CopyKept(const AdapterDropout& dropout,
              uint64_t row_key,
              int64_t module,
              const std::byte* in,
              int64_t cols,
              int64_t element_bytes,
              std::byte* out);

// sums [cols] += d [cols] where nothing is dropped; a d below the smallest normal number leaves the
// sum as it is, with its sign, as adapters do without dropout.
void AddKept(const AdapterDropout& dropout,
             uint64_t row_key,
             int64_t module,
             const float* d,
             int64_t cols,
             float* sums);

}  // namespace tandem
