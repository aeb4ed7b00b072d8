#include "rollout_worker/generation/block_allocator.h"

#include <fmt/format.h>

#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace tandem {

BlockAllocator::BlockAllocator(int64_t num_blocks) : holders_(static_cast<size_t>(num_blocks), 0) {
  for (int64_t block = num_blocks - 1; block >= 0; --block) {
    free_.push_back(static_cast<int32_t>(block));
  }
}

absl::Status BlockAllocator::Allocate(int64_t count, std::vector<int32_t>* blocks) {
  if (count > free_blocks()) {
    return MakeStatus(absl::StatusCode::kResourceExhausted,
                      "the KV pool has {} of {} blocks free, {} are needed", free_blocks(),
                      num_blocks(), count);
  }
  for (int64_t i = 0; i < count; ++i) {
    blocks->push_back(free_.back());
    holders_[static_cast<size_t>(free_.back())] = 1;
    free_.pop_back();
  }
  return absl::OkStatus();
}

void BlockAllocator::Share(const std::vector<int32_t>& blocks) {
  for (const int32_t block : blocks) {
    TANDEM_CHECK(holders(block) > 0, fmt::format("block {} is free and cannot be shared", block));
    ++holders_[static_cast<size_t>(block)];
  }
}

void BlockAllocator::Free(const std::vector<int32_t>& blocks) {
  for (const int32_t block : blocks) {
    TANDEM_CHECK(holders(block) > 0, fmt::format("block {} is freed twice", block));
    if (--holders_[static_cast<size_t>(block)] == 0) free_.push_back(block);
  }
}

}  // namespace tandem
