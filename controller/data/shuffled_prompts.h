// The training prompts of a run in their seeded order.
#pragma once

#include <vector>

#include "controller/data/prompt_source.h"

namespace tandem {

// Holds the tokenised rows; the order of an epoch is a Permutation of them.
class ShuffledPrompts final : public PromptSource {
 public:
  struct Options {
    bool shuffle = true;
    uint64_t seed = 1;
  };
  // Prompt::data_row is the index in `rows`; Prompt::epoch is filled in when drawn.
  ShuffledPrompts(std::vector<Prompt> rows, Options options);

  absl::StatusOr<std::vector<Prompt>> NextBatch(int64_t n) override;
  DataPosition Position() const override { return position_; }
  absl::Status Restore(const DataPosition& position) override;
  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }
  const Prompt* Row(uint64_t data_row) const override {
    return data_row < rows_.size() ? &rows_[data_row] : nullptr;
  }

 private:
  std::vector<Prompt> rows_;
  Options options_;
  DataPosition position_;
};

}  // namespace tandem
