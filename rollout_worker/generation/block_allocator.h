// Who holds which KV block: reference counts, no bytes. A block with several holders is read-only;
// a holder that wants to write copies it first (the scheduler's copy on write).
#pragma once

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

namespace tandem {

// Not thread-safe. Deterministic: equal calls give equal block ids.
class BlockAllocator {
 public:
  explicit BlockAllocator(int64_t num_blocks);

  // Appends `count` blocks with one holder each. ResourceExhausted takes none.
  absl::Status Allocate(int64_t count, std::vector<int32_t>* blocks);
  // One more holder for each block, which must be held already.
  void Share(const std::vector<int32_t>& blocks);
  // One holder less; without holders a block is free again.
  void Free(const std::vector<int32_t>& blocks);

  int64_t num_blocks() const { return static_cast<int64_t>(holders_.size()); }
  int64_t free_blocks() const { return static_cast<int64_t>(free_.size()); }
  int64_t used_blocks() const { return num_blocks() - free_blocks(); }
  int64_t holders(int32_t block) const { return holders_[static_cast<size_t>(block)]; }

 private:
  std::vector<int32_t> holders_;
  std::vector<int32_t> free_;  // last in, first out: the block used last is warm in cache
};

}  // namespace tandem
