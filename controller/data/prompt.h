// One row of the data after tokenisation.
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
  std::string text;         // rendered prompt, for people
  std::string data_source;  // selects the reward
  std::string ground_truth;
  std::string extra_info_json;
};

// Where the prompts of a run come from.

// The next prompt to be drawn: `row` counts within the epoch's (shuffled) order.
struct DataPosition {
  uint64_t epoch = 0;
  int64_t row = 0;

  bool operator==(const DataPosition&) const = default;
};

// The seeded, resumable order of the training prompts. Not thread-safe: the train loop owns it.
class PromptSource {
 public:
  virtual ~PromptSource() = default;

  // The next `n` prompts, ready to generate from (tokenised, no longer than
  // data.max_prompt_length). An epoch's incomplete last batch is dropped, as verl does: the batch
  // comes from the next epoch, in its new order. FailedPrecondition: fewer than `n` rows at all.
  virtual absl::StatusOr<std::vector<Prompt>> NextBatch(int64_t n) = 0;

  // Position and Restore bring back the same batches: NextBatch is a function of the position.
  virtual DataPosition Position() const = 0;
  virtual absl::Status Restore(const DataPosition& position) = 0;

  // Rows after filtering.
  virtual int64_t size() const = 0;

  // What Prompt::data_row means, without an epoch; nullptr: no such row. Lives as long as this.
  virtual const Prompt* Row(uint64_t data_row) const = 0;
};

// Text in and out of the controller: the tokenizer and the chat template behind two calls.

// Thread-safe.
class PromptCodec {
 public:
  virtual ~PromptCodec() = default;

  // Response tokens as text, special tokens left out.
  virtual std::string Decode(const std::vector<int32_t>& tokens) const = 0;
  // `text` as one user message through the chat template, or as it is.
  virtual absl::StatusOr<std::vector<int32_t>> EncodeChat(const std::string& text) const = 0;
  virtual absl::StatusOr<std::vector<int32_t>> EncodeRaw(const std::string& text) const = 0;
};

}  // namespace tandem
