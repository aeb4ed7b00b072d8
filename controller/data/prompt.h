// One row of the data after tokenization.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace tandem {

struct Prompt {
  uint64_t data_row = 0;  // row in the (filtered) data set
  uint64_t epoch = 0;
  std::vector<int32_t> tokens;
  std::string text;         // rendered prompt, for display
  std::string data_source;  // selects the reward function
  std::string ground_truth;
  std::string extra_info_json;
};

// The position of the next prompt: `row` counts within the epoch's (shuffled) order.
struct DataPosition {
  uint64_t epoch = 0;
  int64_t row = 0;

  bool operator==(const DataPosition&) const = default;
};

// The source of training prompts, in a seeded and resumable order. Not thread-safe: used by the
// train loop only.
class PromptSource {
 public:
  virtual ~PromptSource() = default;

  // The next `n` prompts, tokenized and no longer than data.max_prompt_length. An incomplete last
  // batch of an epoch is dropped, as in verl, and the batch is taken from the next epoch in its new
  // order. FailedPrecondition: there are fewer than `n` rows.
  virtual absl::StatusOr<std::vector<Prompt>> NextBatch(int64_t n) = 0;

  // Restoring a position repeats the same batches, because NextBatch is a function of the position.
  virtual DataPosition Position() const = 0;
  virtual absl::Status Restore(const DataPosition& position) = 0;

  // The number of rows after filtering.
  virtual int64_t size() const = 0;

  // The prompt of a data_row, without an epoch; nullptr: no such row. Valid as long as this object.
  virtual const Prompt* Row(uint64_t data_row) const = 0;
};

// Encodes and decodes text with the tokenizer and the chat template. Thread-safe.
class PromptCodec {
 public:
  virtual ~PromptCodec() = default;

  // The text of response tokens, without special tokens.
  virtual std::string Decode(const std::vector<int32_t>& tokens) const = 0;
  // EncodeChat passes `text` as one user message through the chat template; EncodeRaw encodes it as
  // it is.
  virtual absl::StatusOr<std::vector<int32_t>> EncodeChat(const std::string& text) const = 0;
  virtual absl::StatusOr<std::vector<int32_t>> EncodeRaw(const std::string& text) const = 0;
};

}  // namespace tandem
