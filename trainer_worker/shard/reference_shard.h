// This rank's shard of the frozen reference policy, in memory or offloaded (shard_array.h).
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_worker/shard/parameter_shard.h"
#include "trainer_worker/shard/shard_array.h"
#include "trainer_worker/shard/weight_rows.h"

namespace tandem {

// Immutable once made; counted under the tag reference.
class ReferenceShard {
 public:
  // A copy of the rounded weights as they are now. With a directory they are offloaded: to a file
  // there on a CPU, group by group, and the process holds pages of it only while a group is
  // gathered. `ledger` outlives the shard. ResourceExhausted: memory or disk is short; names the
  // tag and the bytes.
  static absl::StatusOr<std::unique_ptr<ReferenceShard>> Copy(const ParameterShard& shard,
                                                              const std::string& offload_dir,
                                                              Ledger* ledger);
  ShardSource source() const;
  // Bytes of pages of the file that this process holds now; 0 without one.
  int64_t held_bytes() const { return array_->file() == nullptr ? 0 : array_->file()->HeldBytes(); }

 private:
  ReferenceShard() = default;
  std::unique_ptr<ShardArray> array_;
};

}  // namespace tandem
