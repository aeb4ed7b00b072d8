// The pool in a checkpoint: saved, and brought back where it fits.
#include <utility>

#include <fmt/ranges.h>

#include "common/base/status_macros.h"
#include "controller/partial_rollout/buffer/resume_check.h"
#include "controller/partial_rollout/buffer/rollout_buffer.h"

namespace tandem {

std::map<std::string, std::string> FixedSettings(const PoolOptions& options) {
  const SamplingParams& sampling = options.sampling;
  return {{"rollout.n", fmt::format("{}", options.samples_per_prompt)},
          {"rollout.temperature", fmt::format("{}", sampling.temperature)},
          {"rollout.top_p", fmt::format("{}", sampling.top_p)},
          {"rollout.top_k", fmt::format("{}", sampling.top_k)},
          {"rollout.seed", fmt::format("{}", sampling.seed)},
          {"rollout.stop", fmt::format("{}", sampling.stop)},
          {"rollout.ignore_eos", fmt::format("{}", sampling.ignore_eos)},
          {"rollout.calculate_log_probs", fmt::format("{}", options.log_probs)},
          {"model.path (its end-of-sequence ids)", fmt::format("{}", sampling.stop_token_ids)}};
}

std::string CutsIdentity(const PoolOptions& options) {
  std::string text = fmt::format("tokenizer {}, data.max_response_length {}",
                                 options.tokenizer_digest, options.sampling.max_tokens);
  for (const auto& [key, value] : FixedSettings(options)) {
    text += fmt::format(", {} {}", key, value);
  }
  return text;
}

absl::Status SamplePool::Save(const std::string& checkpoint, int64_t step) const {
  return WriteSavedPool(checkpoint, step, options_, state_);
}

absl::Status SamplePool::Load(const std::string& checkpoint, const DataRows& rows, int64_t step) {
  TANDEM_ASSIGN_OR_RETURN(std::optional<SavedPool> saved,
                          ReadFittingPool(checkpoint, options_, rows, step));
  PoolState loaded;
  TANDEM_ASSIGN_OR_RETURN(loaded.file, PoolFile::Create(dir_));
  if (saved) {
    loaded.next_group = saved->next_group;
    for (auto& [number, group] : saved->groups) {
      for (PooledSample& sample : group.samples) {
        TANDEM_ASSIGN_OR_RETURN(const int64_t offset, loaded.file->Append(saved->Read(sample)));
        sample.offset = offset;
        const bool used_up = sample.tokens() >= options_.sampling.max_tokens;
        if (!sample.finished() && used_up) sample.finish = FinishReason::kLength;
      }
      loaded.groups.emplace(number, std::move(group));
    }
  }
  state_ = std::move(loaded);
  Mark();
  GoBack();
  return absl::OkStatus();
}

}  // namespace tandem
