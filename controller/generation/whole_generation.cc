#include "controller/generation/whole_generation.h"

#include <iterator>
#include <utility>

#include "common/base/status.h"

namespace tandem {

absl::Status WholeGeneration::AddPrompts(StepBatch& batch) {
  TANDEM_ASSIGN_OR_RETURN(std::vector<Prompt> drawn,
                          DrawPrompts(context_.prompts, options_.train_batch_size));
  std::move(drawn.begin(), drawn.end(), std::back_inserter(batch.prompts));
  return absl::OkStatus();
}

absl::Status WholeGeneration::Prepare(StepBatch& batch) {
  generated_ = 0;
  return AddPrompts(batch);
}

std::vector<GroupRequest> WholeGeneration::MakeRequests(StepBatch& batch, size_t first) const {
  // First of all, so that the probe shares its decode batches with the step's own samples.
  std::vector<GroupRequest> groups;
  if (options_.probe && first == 0) groups = context_.probe.Begin(batch.step, batch.version);
  for (size_t g = first; g < batch.prompts.size(); ++g) {
    const Prompt& prompt = batch.prompts[g];
    GroupRequest group{.request_id = fmt::format("{}-{}", batch.step, g),
                       .version = batch.version,
                       .prompt = prompt.tokens,
                       .params = options_.sampling,
                       .group = static_cast<int64_t>(g)};
    for (int64_t i = 0; i < options_.samples_per_prompt; ++i) {
      group.sample_ids.push_back(
          MakeSampleId(prompt.data_row, prompt.epoch, static_cast<uint64_t>(i)));
    }
    groups.push_back(std::move(group));
  }
  if (options_.greedy_baselines) {
    const auto begin = batch.prompts.begin() + static_cast<int64_t>(first);
    std::vector<GroupRequest> greedy =
        batch.baselines.Ask(batch.step, batch.version, {begin, batch.prompts.end()},
                            static_cast<int64_t>(first), options_.sampling);
    std::move(greedy.begin(), greedy.end(), std::back_inserter(groups));
  }
  return groups;
}

absl::Status WholeGeneration::Generate(StepBatch& batch, int64_t /*missing*/) {
  if (generated_ == batch.prompts.size()) TANDEM_RETURN_IF_ERROR(AddPrompts(batch));
  batch.phases.Begin("generate");
  const size_t first = std::exchange(generated_, batch.prompts.size());
  std::vector<GroupRequest> groups = MakeRequests(batch, first);
  const auto total =
      static_cast<int64_t>(batch.prompts.size() - first) * options_.samples_per_prompt;
  int64_t done = 0;
  const auto take = [&](Sample sample) -> absl::Status {
    if (ParityProbe::Owns(sample)) return context_.probe.Put(std::move(sample));
    batch.tail.Arrived(sample);
    batch.facts.generated_tokens += sample.response_tokens();
    if (GreedyBaselines::Owns(sample)) return batch.baselines.Put(sample, context_.text);
    // The worker counts samples from 0 in each request; a re-issued request holds fewer.
    sample.index = static_cast<int64_t>(sample.sample_id & 0xfffu);
    TANDEM_RETURN_IF_ERROR(context_.samples.Put(sample, batch.version, TokenVersions::kExactly,
                                                absl::ToUnixMicros(context_.clock.WallNow())));
    context_.progress.OnPhaseProgress(batch.step, ++done, total);
    return absl::OkStatus();
  };
  batch.tail.Begin();
  TANDEM_RETURN_IF_ERROR(context_.fleet.Generate(
      std::move(groups), batch.version, take,
      {.on_rejoin = [this](int rank) { return context_.probe.Reissue(rank); }}));
  batch.tail.End();
  return absl::OkStatus();
}

}  // namespace tandem
