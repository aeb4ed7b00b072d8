// Ranks that train adapters, and a rollout's end of their syncs.
#pragma once

#include <memory>
#include <vector>

#include "tests/fakes/fake_update_client.h"
#include "tests/trainer_worker/rank_group.h"

namespace tandem::testing {

inline LogProbsBySample ScoresOf(RankGroup& group,
                                 const std::vector<Sample>& samples,
                                 bool reference) {
  std::vector<LogProbsBySample> scores(static_cast<size_t>(group.size()));
  group.RunOk([&](Rank& rank, int index) -> absl::Status {
    const auto mine = Share(samples, index, group.size());
    TrainingSession& session = *rank.session;
    TANDEM_ASSIGN_OR_RETURN(scores[static_cast<size_t>(index)],
                            reference ? session.ScoreReference(mine) : session.Score(mine));
    return absl::OkStatus();
  });
  LogProbsBySample all;
  for (const LogProbsBySample& part : scores) all.insert(part.begin(), part.end());
  return all;
}

// Makes B what a seed says, whatever the number of ranks.
inline void SetB(RankGroup& group, uint64_t seed) {
  group.RunOk([&](Rank& rank, int) -> absl::Status {
    ParameterShard& shard = rank.session->shard();
    const ShardPlan& plan = shard.plan();
    for (size_t tensor = 0; tensor < plan.tensors().size(); ++tensor) {
      const ShardPlan::Piece& piece = plan.mine(tensor);
      const int64_t cols = plan.tensors()[tensor]->cols();
      for (int64_t i = 0; tensor % 2 == 1 && i < piece.elements; ++i) {
        const auto at = static_cast<uint64_t>(piece.row * cols + i);
        shard.master()[piece.offset + i] = 0.2f * (RandomUniform(seed, tensor, at) - 0.5f);
      }
      TANDEM_RETURN_IF_ERROR(shard.MastersWritten(piece.offset, piece.elements));
    }
    return rank.session->WeightsChanged();
  });
}

// Of every adapter, A and B of each target in turn, put together from the ranks.
inline std::vector<std::vector<float>> AdapterGradientsOf(RankGroup& group) {
  std::vector<std::vector<float>> gradients;
  const size_t count = group[0].session->shard().plan().tensors().size();
  for (size_t tensor = 0; tensor < count; ++tensor) {
    gradients.emplace_back();
    for (int k = 0; k < group.size(); ++k) {
      ParameterShard& shard = group[k].session->shard();
      const ShardPlan::Piece& piece = shard.plan().mine(tensor);
      const float* const from = shard.gradients() + piece.offset;
      gradients.back().insert(gradients.back().end(), from, from + piece.elements);
    }
  }
  return gradients;
}

// Two prompts, three samples of each, in groups.
inline std::vector<Sample> GroupedSamples() {
  std::vector<Sample> samples = RandomSamples(6, 3);
  for (size_t i = 0; i < samples.size(); ++i) {
    Sample& sample = samples[i];
    const Sample& first = samples[i / 3 * 3];
    std::vector<int32_t> tokens(first.tokens.begin(), first.tokens.begin() + first.prompt_tokens);
    tokens.insert(tokens.end(), sample.tokens.begin() + sample.prompt_tokens, sample.tokens.end());
    sample.tokens = tokens;
    sample.prompt_tokens = first.prompt_tokens;
    sample.sample_id = MakeSampleId(i / 3, 0, i % 3);
    const int64_t response = sample.response_tokens();
    sample.segments = {{0, sample.prompt_tokens, false, 0},
                       {sample.prompt_tokens, response, true, 0}};
  }
  return samples;
}

struct Receiver {
  explicit Receiver(TrainingSession& session)
      : layout(session.decoder().layout()),
        storage(static_cast<size_t>(layout.total_bytes())),
        updates(CreateCpuStorageOps(&layout, storage.data(), std::make_shared<ThreadPool>(1))),
        client(&updates) {}
  const WeightLayout& layout;
  std::vector<std::byte> storage;
  UpdateReceiver updates;
  FakeUpdateClient client;
};

}  // namespace tandem::testing
