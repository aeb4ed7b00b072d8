// The rollout buffer in a checkpoint, CHECKPOINT/partial_pool:
//
//   tokens.bin   the samples one after another without gaps: the response's token ids (int32), then
//                their log-probs (float32) where the sample has them; little endian
//   pool.jsonl   a header, one line per group in the order in which they were drawn, and a last
//                line with the 128-bit XXH3 of everything before it. The header's "ahead" is
//                BufferState::ahead, and is left out where there is none.
//
// Raise kBufferFormat with every change of the meaning of these files.
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

inline constexpr char kBufferFolder[] = "partial_pool";
inline constexpr int64_t kBufferFormat = 1;

struct SavedBuffer {
  std::string folder;
  // Settings of the run that saved it.
  std::string tokenizer_digest;
  int64_t vocab_limit = 0;
  int64_t response_length = 0;
  std::map<std::string, std::string> settings;  // FixedSettings

  int64_t step = 0;  // finished steps of that run
  int64_t next_group = 0;
  std::optional<SampledAhead> ahead;
  std::map<int64_t, BufferedGroup> groups;   // offsets: in `arrays`
  std::shared_ptr<const MappedFile> arrays;  // tokens.bin

  TokenArrays Read(const BufferedSample& sample) const;
};

// Replaces the checkpoint's saved buffer, completely or not at all; durable. Errors of the disk by
// IoErrorCode.
absl::Status WriteSavedBuffer(const std::string& checkpoint,
                              int64_t step,
                              const BufferOptions& options,
                              const BufferState& state);

// nullopt: `checkpoint` has none. Unimplemented: another format. DataLoss: files are missing,
// truncated or changed, or contradict each other: sample ids do not match their rows, rows occur
// twice, or versions decrease. Every message names file, reason and remedy.
absl::StatusOr<std::optional<SavedBuffer>> ReadSavedBuffer(const std::string& checkpoint);

// DataLoss with file and reason, as above but without the remedy: the saved buffer of `checkpoint`
// is damaged. OK: it is intact, of another format, or the checkpoint has none.
absl::Status CheckSavedBuffer(const std::string& checkpoint);

}  // namespace tandem
