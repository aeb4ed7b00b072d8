#include "controller/partial_rollout/buffer/buffered_sample.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tandem {

int64_t BufferedSample::tokens() const {
  return std::accumulate(versions.begin(), versions.end(), int64_t{0},
                         [](int64_t sum, const VersionRun& run) { return sum + run.tokens; });
}

int64_t BufferedSample::versions_before(int64_t version) const {
  return std::count_if(versions.begin(), versions.end(),
                       [&](const VersionRun& run) { return run.version < version; });
}

bool BufferedGroup::complete() const {
  return std::all_of(samples.begin(), samples.end(),
                     [](const BufferedSample& sample) { return sample.finished(); });
}

int64_t BufferedGroup::oldest_version() const {
  int64_t oldest = std::numeric_limits<int64_t>::max();
  for (const BufferedSample& sample : samples) {
    if (!sample.versions.empty()) oldest = std::min(oldest, sample.versions.front().version);
  }
  return oldest;
}

std::vector<VersionRun> ToVersionRuns(const std::vector<int64_t>& versions) {
  std::vector<VersionRun> runs;
  for (const int64_t version : versions) {
    if (runs.empty() || runs.back().version != version) runs.push_back({version, 0});
    ++runs.back().tokens;
  }
  return runs;
}

std::vector<int64_t> PerToken(const std::vector<VersionRun>& runs) {
  std::vector<int64_t> versions;
  for (const VersionRun& run : runs) {
    versions.insert(versions.end(), static_cast<size_t>(run.tokens), run.version);
  }
  return versions;
}

std::map<std::string, std::string> FixedSettings(const BufferOptions& options) {
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

std::string RoundJournalIdentity(const BufferOptions& options) {
  std::string text = fmt::format("tokenizer {}, data.max_response_length {}",
                                 options.tokenizer_digest, options.sampling.max_tokens);
  for (const auto& [key, value] : FixedSettings(options)) {
    text += fmt::format(", {} {}", key, value);
  }
  return text;
}

}  // namespace tandem
