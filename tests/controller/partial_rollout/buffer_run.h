// A buffer with rollouts whose tokens are a function of sample id and position, as a model's whose
// weights do not change.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/philox.h"
#include "common/base/status.h"
#include "controller/partial_rollout/round.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem::testing {

inline constexpr int64_t kVocab = 50;
inline constexpr int64_t kAll = 1 << 30;  // tokens
inline constexpr int64_t kStep = 4;       // finished ones of checkpoints

inline uint64_t Id(uint64_t row, uint64_t index) { return MakeSampleId(row, 0, index); }

inline BufferOptions OptionsOf(int64_t samples, int64_t budget) {
  return {.tokenizer_digest = "digest",
          .vocab_limit = kVocab,
          .samples_per_prompt = samples,
          .sampling = {.max_tokens = budget}};
}

// Row `row` of the data.
inline Prompt SomePrompt(uint64_t row, uint64_t epoch = 0) {
  const auto id = static_cast<int32_t>(row % kVocab);
  return {.data_row = row,
          .epoch = epoch,
          .tokens = {id, 7, static_cast<int32_t>(kVocab - 1)},
          .text = "prompt \"" + std::to_string(row) + "\"\n",
          .data_source = "made/up",
          .ground_truth = "äöü",
          .extra_info_json = "{\"row\": 1}"};
}

inline std::vector<Prompt> SomePrompts(uint64_t first, int64_t n) {
  std::vector<Prompt> prompts;
  for (int64_t i = 0; i < n; ++i) prompts.push_back(SomePrompt(first + static_cast<uint64_t>(i)));
  return prompts;
}

inline int32_t TokenAt(uint64_t sample_id, int64_t position) {
  return static_cast<int32_t>(RandomWords(1, sample_id, static_cast<uint64_t>(position))[0] %
                              kVocab);
}
inline float LogProbAt(uint64_t sample_id, int64_t position) {
  return -RandomUniform(2, sample_id, static_cast<uint64_t>(position));
}

struct BufferRun {
  explicit BufferRun(BufferOptions buffer_options = {.tokenizer_digest = "digest",
                                                     .vocab_limit = kVocab,
                                                     .samples_per_prompt = 3,
                                                     .sampling = {.max_tokens = 10, .seed = 5}})
      : options(std::move(buffer_options)) {
    buffer = OpenBuffer();
  }

  std::unique_ptr<RolloutBuffer> OpenBuffer() const {
    auto opened = RolloutBuffer::Open(dir.path() / "partial_pool", options);
    INFO(opened.status().ToString());
    REQUIRE(opened.ok());
    return *std::move(opened);
  }

  // How long the response is of a sample that nothing cuts: 1 up to the budget, which is reached by
  // those that would be longer.
  int64_t Length(uint64_t id) const {
    if (lengths) return lengths(id);
    return 1 + static_cast<int64_t>(RandomWords(3, id, 0)[0] % 14);
  }

  // The sample that a rollout gives for `request`, cut after `most` tokens of this round (as one
  // that was aborted) where that is less than it may have.
  Sample Generated(const GroupRequest& request, uint64_t id, int64_t most = kAll) const {
    Continuation from;
    if (request.load_continued) from = request.load_continued({id}).value().front();
    Sample sample{.sample_id = id,
                  .group = request.group,
                  .tokens = request.prompt,
                  .prompt_tokens = std::ssize(request.prompt),
                  .log_probs = from.log_probs,
                  .versions = from.versions};
    sample.tokens.insert(sample.tokens.end(), from.tokens.begin(), from.tokens.end());
    const auto had = static_cast<int64_t>(from.tokens.size());
    const int64_t cap = from.max_new_tokens > 0 ? from.max_new_tokens : kAll;
    const int64_t end = std::min({Length(id), request.params.max_tokens, had + cap, had + most});
    for (int64_t at = had; at < end; ++at) {
      sample.tokens.push_back(TokenAt(id, at));
      if (options.log_probs) sample.log_probs.push_back(LogProbAt(id, at));
      sample.versions.push_back(request.version);
    }
    sample.finish_reason = end == Length(id)                  ? FinishReason::kStop
                           : end == request.params.max_tokens ? FinishReason::kLength
                           : end == had + cap                 ? FinishReason::kCut
                                                              : FinishReason::kAborted;
    return sample;
  }

  // Begins a round and returns its requests. With an error the round before is still the newest.
  absl::StatusOr<std::vector<GroupRequest>> Begin(const RoundSpec& spec) const {
    TANDEM_ASSIGN_OR_RETURN(Round planned, Round::Plan(*buffer, spec));
    TANDEM_RETURN_IF_ERROR(planned.CheckInterruptionPoints());
    round = std::move(planned);
    return round->MakeRequests();
  }
  absl::Status Put(const Sample& sample) const { return round->Put(sample); }

  // One round; `most` says how far a sample of a request that may be cut gets, -1: it never comes.
  void RunRound(const RoundSpec& spec,
                const std::function<int64_t(uint64_t)>& most = nullptr) const {
    auto requests = Begin(spec);
    INFO(requests.status().ToString());
    REQUIRE(requests.ok());
    for (const GroupRequest& request : *requests) {
      for (const uint64_t id : request.sample_ids) {
        const int64_t tokens = most && request.interruptible ? most(id) : kAll;
        if (tokens < 0) continue;
        const absl::Status put = Put(Generated(request, id, tokens));
        INFO(put.ToString());
        REQUIRE(put.ok());
      }
    }
  }

  // The samples of the `n` oldest whole groups.
  std::vector<Sample> Taken(int64_t n, TakenGroups* groups = nullptr) const {
    std::vector<Sample> samples;
    auto taken = buffer->Take(n, [&](Sample sample) {
      REQUIRE(sample.group == std::ssize(samples) / options.samples_per_prompt);
      samples.push_back(std::move(sample));
      return absl::OkStatus();
    });
    INFO(taken.status().ToString());
    REQUIRE(taken.ok());
    if (groups != nullptr) *groups = *std::move(taken);
    return samples;
  }

  TempDir dir;
  BufferOptions options;
  std::function<int64_t(uint64_t)> lengths;
  std::unique_ptr<RolloutBuffer> buffer;
  mutable std::optional<Round> round;  // the newest one
};

// Whole, and what the rollouts make of it, by whatever rounds.
inline void RequireWhole(const BufferRun& run, const Sample& sample) {
  const int64_t length = std::min(run.Length(sample.sample_id), run.options.sampling.max_tokens);
  REQUIRE(sample.response_tokens() == length);
  REQUIRE(std::ssize(sample.versions) == length);
  REQUIRE(std::ssize(sample.log_probs) == (run.options.log_probs ? length : 0));
  const bool stopped = run.Length(sample.sample_id) <= run.options.sampling.max_tokens;
  REQUIRE(sample.finish_reason == (stopped ? FinishReason::kStop : FinishReason::kLength));
  for (int64_t at = 0; at < length; ++at) {
    REQUIRE(sample.tokens[static_cast<size_t>(sample.prompt_tokens + at)] ==
            TokenAt(sample.sample_id, at));
    if (!run.options.log_probs) continue;
    REQUIRE(sample.log_probs[static_cast<size_t>(at)] == LogProbAt(sample.sample_id, at));
  }
  REQUIRE(std::is_sorted(sample.versions.begin(), sample.versions.end()));
}

}  // namespace tandem::testing

// Tests over a buffer are about these: they name them without the namespace.
namespace tandem {
using testing::BufferRun;
using testing::Id;
using testing::kAll;
using testing::kStep;
using testing::kVocab;
using testing::LogProbAt;
using testing::OptionsOf;
using testing::RequireWhole;
using testing::Says;
using testing::SomePrompt;
using testing::SomePrompts;
using testing::TokenAt;
}  // namespace tandem
