#include "controller/data/shuffled_prompts.h"

#include <bit>
#include <utility>

#include "common/base/philox.h"
#include "common/base/status.h"

namespace tandem {
namespace {
constexpr int kRounds = 4;
}  // namespace

Permutation::Permutation(uint64_t size, uint64_t seed, uint64_t epoch)
    : size_(size), seed_(seed), epoch_(epoch) {
  const int bits = std::bit_width(size - 1);
  half_bits_ = bits < 2 ? 1 : (bits + 1) / 2;
}

uint64_t Permutation::operator()(uint64_t index) const {
  // The domain has fewer than four times as many elements, so the loop takes fewer than four rounds
  // on average.
  do {
    index = Encrypt(index);
  } while (index >= size_);
  return index;
}

uint64_t Permutation::Encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_, right = value & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t word = RandomWords(seed_, epoch_, (right << 8) | round)[0];
    const uint64_t mixed = left ^ (word & mask);
    left = right;
    right = mixed;
  }
  return (left << half_bits_) | right;
}

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
