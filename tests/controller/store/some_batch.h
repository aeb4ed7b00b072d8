// A small batch that has every field.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "controller/store/batch_file.h"

namespace tandem::testing {

// Three prompt tokens and `responses` more.
inline SavedSample SomeSample(uint64_t id, int64_t group, int64_t responses) {
  SavedSample sample;
  sample.sample_id = id;
  sample.group = group;
  sample.index = static_cast<int64_t>(id % 2);
  sample.tokens = {1, 2, 3};
  sample.prompt_tokens = 3;
  for (int64_t i = 0; i < responses; ++i) {
    const auto x = static_cast<float>(i);
    sample.tokens.push_back(static_cast<int32_t>(100 * group + i));
    sample.versions.push_back(7);
    sample.log_probs.push_back(-0.5f - x);
    sample.old_log_probs.push_back(-0.5f - x);
    sample.ref_log_probs.push_back(-1.0f - x);
    sample.sum_pi_squared.push_back(0.25f);
    sample.advantages.push_back(x - 1);
    sample.is_weights.push_back(1.5f);
    sample.mask.push_back(i == 0 ? 0.0f : 1.0f);
  }
  sample.segments = {{.begin = 3, .length = responses, .trained = true, .weight_version = 7}};
  sample.finish_reason = group == 0 ? FinishReason::kStop : FinishReason::kLength;
  sample.temperature = 0.75f;
  sample.off_support = group == 1;
  sample.reward = 0.5 * static_cast<double>(sample.index);
  sample.trained_tokens = std::max<int64_t>(0, responses - 1);
  sample.mini_batch = group;
  sample.rank = 1;
  sample.score = static_cast<double>(sample.index);
  sample.advantage = -0.25;
  sample.reward_terms = {{"length", -0.5}};
  return sample;
}

inline SavedBatchInfo SomeInfo() {
  return {.step = 12,
          .sampling_version = 7,
          .version = 8,
          .failure = "step 12: 1 update in a row was skipped",
          .epoch = 1,
          .mini_batch = 1,
          .ranks = 2,
          .model_path = "/nowhere/model",
          .checkpoint = "/nowhere/step_11",
          .config_yaml = "rollout:\n  n: 2\n",
          .mini_batches = {{0, 2, 5}, {1, 2, 3}},
          .metrics = {{"actor/lr", 1e-6}, {"actor/grad_norm", NAN}}};
}

inline void WriteBatch(const std::string& path,
                       const SavedBatchInfo& info,
                       const std::vector<SavedSample>& samples) {
  const auto writer = BatchWriter::Create(path);
  REQUIRE(writer.ok());
  for (const SavedSample& sample : samples) REQUIRE((*writer)->Add(sample).ok());
  REQUIRE((*writer)->Commit(info).ok());
}

// Two groups of two; the last response is empty.
inline std::vector<SavedSample> SomeSamples() {
  return {SomeSample(2, 0, 4), SomeSample(3, 0, 3), SomeSample(0xabcdef0123456789, 1, 4),
          SomeSample(0xfffffffffffffffe, 1, 0)};
}

}  // namespace tandem::testing
