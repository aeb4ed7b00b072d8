// Writes rows into a full storage in host memory and digests what it holds, with all threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/process/threads.h"
#include "common/weights/digest.h"
#include "common/weights/layout.h"
#include "common/weights/storage_ops.h"

namespace tandem {

// Writes rows; a row must not occur twice.
void StoreRows(ThreadPool& pool,
               const WeightLayout& layout,
               std::byte* storage,
               const std::vector<DenseRows>& pieces);

// Digests every tensor, re-read through the inverse layout.
std::vector<Digest> DigestStored(ThreadPool& pool,
                                 const WeightLayout& layout,
                                 const std::byte* storage,
                                 const std::vector<const TensorPlace*>& places);

}  // namespace tandem
