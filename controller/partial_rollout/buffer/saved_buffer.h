// A pool in a checkpoint, CHECKPOINT/partial_pool:
//
//   tokens.bin   of one sample after another, without gaps: ids of its response (int32), then their
//                log-probs (float32) where it has them; little endian
//   pool.jsonl   a header, one line per group in order of drawing, a last line with the XXH3 of 128
//                bits of all before it
//
// What changes the meaning of anything raises kPoolFormat.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/formats/files.h"
#include "controller/partial_rollout/buffer/buffered_sample.h"

namespace tandem {

inline constexpr char kPoolFolder[] = "partial_pool";
inline constexpr int64_t kPoolFormat = 1;

struct SavedPool {
  std::string folder;
  // Of the run that saved it.
  std::string tokenizer_digest;
  int64_t vocab_limit = 0;
  int64_t response_length = 0;
  std::map<std::string, std::string> settings;  // FixedSettings

  int64_t step = 0;  // finished steps of that run
  int64_t next_group = 0;
  std::map<int64_t, PooledGroup> groups;     // offsets: in `arrays`
  std::shared_ptr<const MappedFile> arrays;  // tokens.bin

  PoolArrays Read(const PooledSample& sample) const;
};

// Whole or not at all, in place of what is there; durable. Errors of the disk by IoErrorCode.
absl::Status WriteSavedPool(const std::string& checkpoint,
                            int64_t step,
                            const PoolOptions& options,
                            const PoolState& state);

// nullopt: `checkpoint` has none. Unimplemented: of another format; DataLoss: files are missing,
// cut or changed, or do not fit each other: ids that are not their rows', or twice, versions that
// fall. Every message names file, reason and remedy.
absl::StatusOr<std::optional<SavedPool>> ReadSavedPool(const std::string& checkpoint);

// Whether a checkpoint is whole as far as its pool goes: DataLoss with file and reason, as above
// but without the remedy, where it is damaged. OK: it is whole, of another format, or there is
// none.
absl::Status CheckSavedPool(const std::string& checkpoint);

}  // namespace tandem
