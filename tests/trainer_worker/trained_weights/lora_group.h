// Ranks that train adapters, and a rollout's end of their syncs.
#pragma once

#include <memory>
#include <vector>

#include "tests/fakes/fake_update_client.h"
#include "tests/trainer_worker/trainer_ranks.h"
#include "trainer_worker/trained_weights/lora_weights.h"

namespace tandem::testing {

inline LogProbsBySample ScoresOf(TrainerRanks& group,
                                 const std::vector<Sample>& samples,
                                 bool reference) {
  std::vector<LogProbsBySample> scores(static_cast<size_t>(group.size()));
  group.RunOk([&](Rank& rank, int index) -> absl::Status {
    const auto mine = Share(samples, index, group.size());
    TrainingSession& session = *rank.session;
    TANDEM_ASSIGN_OR_RETURN(
        scores[static_cast<size_t>(index)],
        session.Score(mine, reference ? LogProbPolicy::kReference : LogProbPolicy::kCurrent));
    return absl::OkStatus();
  });
  LogProbsBySample all;
  for (const LogProbsBySample& part : scores) all.insert(part.begin(), part.end());
  return all;
}

// Makes B what a seed says, whatever the number of ranks.
inline void SetB(TrainerRanks& group, uint64_t seed) {
  group.RunOk([&](Rank& rank, int) -> absl::Status {
    ParameterShard& shard = rank.session->shard();
    const ShardPlan& plan = shard.plan();
    for (size_t tensor = 0; tensor < plan.tensors().size(); ++tensor) {
      const ShardPlan::Piece& piece = plan.mine(tensor);
      const int64_t cols = plan.tensors()[tensor]->cols();
      if (tensor % 2 == 0) {
        TANDEM_RETURN_IF_ERROR(shard.MastersWritten(piece.offset, piece.elements));
        continue;
      }
      const auto fill = [&](float* values) {
        for (int64_t i = 0; i < piece.elements; ++i) {
          const auto at = static_cast<uint64_t>(piece.row * cols + i);
          values[i] = 0.2f * (RandomUniform(seed, tensor, at) - 0.5f);
        }
        return absl::OkStatus();
      };
      TANDEM_RETURN_IF_ERROR(shard.WriteMasters(piece.offset, piece.elements, fill));
    }
    return rank.session->WeightsChanged();
  });
}

// Of the ranks' merged weights, as a sync announces them.
inline std::vector<Digest> MergedDigests(TrainerRanks& group) {
  std::vector<Digest> digests;
  group.RunOk([&](Rank& rank, int index) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const auto mine, rank.session->weights().MakeWeightSource()->Digests());
    if (index == 0) digests = mine;
    return absl::OkStatus();
  });
  return digests;
}

// The same of what a check compares with, which the host merges. Tensors are small here.
inline std::vector<Digest> OracleDigests(Rank& rank) {
  TrainingSession& session = *rank.session;
  const auto expected = session.weights().OpenExpected("");
  REQUIRE(expected.ok());
  std::vector<Digest> digests;
  for (const TensorPlace& place : session.decoder().layout().places()) {
    const auto element = static_cast<int64_t>(DTypeBytes(session.decoder().layout().dtype()));
    const int64_t row_bytes = place.cols() * element;
    const auto rows = (*expected)->Rows({&place, 0, place.rows(), row_bytes});
    INFO(rows.status().ToString());
    REQUIRE(rows.ok());
    digests.push_back(DigestOf(*rows, place.rows() * row_bytes));
  }
  return digests;
}

// Of every adapter, A and B of each target in turn, put together from the ranks.
inline std::vector<std::vector<float>> AdapterGradientsOf(TrainerRanks& group) {
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
  UpdateTransaction updates;
  FakeUpdateClient client;
};

}  // namespace tandem::testing
