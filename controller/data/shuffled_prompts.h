// The training prompts of a run in a seeded, resumable order.
#pragma once

#include <cstdint>
#include <vector>

#include "controller/data/prompt.h"

namespace tandem {

// A seeded permutation of 0..n-1 that needs no table: any element is computed on its own, so that a
// run can resume in the middle of an epoch without replaying it. Four-round Feistel network on
// Philox words over the next even power of two, with cycle walking (Black and Rogaway, "Ciphers
// with arbitrary finite domains", CT-RSA 2002).
class Permutation {
 public:
  // `size` > 0. Distinct (seed, epoch) give unrelated orders.
  Permutation(uint64_t size, uint64_t seed, uint64_t epoch);

  // The image of `index` < size: a bijection of 0..size-1.
  uint64_t operator()(uint64_t index) const;

 private:
  uint64_t Encrypt(uint64_t value) const;

  uint64_t size_, seed_, epoch_;
  int half_bits_;
};

// The training prompts of a run. Stores the tokenized rows; the order of an epoch is a Permutation
// of them.
class ShuffledPrompts final : public PromptSource {
 public:
  struct Options {
    bool shuffle = true;
    uint64_t seed = 1;
  };
  // Prompt::data_row is the index in `rows`; Prompt::epoch is set when a prompt is drawn.
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
