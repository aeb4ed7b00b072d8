#include "controller/data/shuffled_prompts.h"

#include <utility>

#include "common/base/status_macros.h"
#include "controller/data/permutation.h"

namespace tandem {

ShuffledPrompts::ShuffledPrompts(std::vector<Prompt> rows, Options options)
    : rows_(std::move(rows)), options_(options) {
  for (size_t i = 0; i < rows_.size(); ++i) rows_[i].data_row = i;
}

absl::StatusOr<std::vector<Prompt>> ShuffledPrompts::NextBatch(int64_t n) {
  if (n > size()) {
    return FailedPrecondition(
        "data.train_batch_size is {} but the training data has only {} prompts after filtering", n,
        size());
  }
  if (position_.row + n > size()) position_ = DataPosition{position_.epoch + 1, 0};
  const Permutation order(static_cast<uint64_t>(size()), options_.seed, position_.epoch);
  std::vector<Prompt> batch;
  for (int64_t i = 0; i < n; ++i) {
    const auto place = static_cast<uint64_t>(position_.row + i);
    batch.push_back(rows_[options_.shuffle ? order(place) : place]);
    batch.back().epoch = position_.epoch;
  }
  position_.row += n;
  return batch;
}

absl::Status ShuffledPrompts::Restore(const DataPosition& position) {
  if (position.row < 0 || position.row > size()) {
    return FailedPrecondition(
        "the checkpoint stands at row {} of the training data, which now has {} rows: resume with "
        "the data the run was started with",
        position.row, size());
  }
  position_ = position;
  return absl::OkStatus();
}

}  // namespace tandem
