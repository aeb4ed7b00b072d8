#include "controller/step/mini_batches.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/base/philox.h"
#include "controller/balance/rank_assignment.h"

namespace tandem {
namespace {

// Fisher-Yates with counter-based random numbers.
void Shuffle(std::vector<int64_t>& groups, uint64_t seed, int64_t step, int64_t epoch) {
  const uint64_t stream = (static_cast<uint64_t>(step) << 16) | static_cast<uint64_t>(epoch);
  for (size_t i = groups.size(); i > 1; --i) {
    const auto words = RandomWords(seed, stream, i);
    const uint64_t word = (static_cast<uint64_t>(words[0]) << 32) | words[1];
    std::swap(groups[i - 1], groups[word % i]);
  }
}

}  // namespace

std::vector<MiniBatch> PlanMiniBatches(
    const TrainOptions& options, int64_t step, int64_t epoch, int ranks, SampleStore& samples) {
  std::map<int64_t, std::vector<SampleMeta>> members;
  for (SampleMeta& meta : samples.Metas()) members[meta.group].push_back(std::move(meta));
  std::vector<int64_t> order;
  for (const auto& [group, metas] : members) order.push_back(group);
  if (options.shuffle) Shuffle(order, options.shuffle_seed, step, epoch);

  std::vector<MiniBatch> batches;
  const auto size = static_cast<size_t>(options.mini_batch_prompts);
  for (size_t begin = 0; begin < order.size(); begin += size) {
    MiniBatch batch{.index = static_cast<int64_t>(batches.size())};
    std::vector<SampleLength> lengths;
    for (size_t i = begin; i < std::min(begin + size, order.size()); ++i) {
      for (const SampleMeta& meta : members[order[i]]) {
        lengths.push_back({.sample_id = meta.sample_id,
                           .tokens = meta.prompt_tokens + meta.response_tokens,
                           .group = meta.group,
                           .prompt_tokens = meta.prompt_tokens});
        batch.trained_tokens += meta.trained_tokens;
      }
    }
    batch.samples = static_cast<int64_t>(lengths.size());
    const auto parts = AssignSamplesToRanks(std::move(lengths), ranks, options.balance);
    for (int rank = 0; rank < ranks; ++rank) {
      for (const uint64_t id : parts[static_cast<size_t>(rank)]) {
        samples.Assign(id, batch.index, rank);
      }
    }
    batches.push_back(batch);
  }
  return batches;
}

UpdateCount CountUpdates(const TrainOptions& options,
                         int64_t step,
                         int ranks,
                         SampleStore& samples) {
  UpdateCount count;
  for (int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    for (const MiniBatch& mini : PlanMiniBatches(options, step, epoch, ranks, samples)) {
      ++(mini.trained_tokens > 0 ? count.updates : count.left_out);
    }
  }
  return count;
}

}  // namespace tandem
