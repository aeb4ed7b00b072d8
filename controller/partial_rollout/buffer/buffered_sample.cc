#include "controller/partial_rollout/buffer/buffered_sample.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/status.h"

namespace tandem {
namespace {

// The segments that a rollout would report: the prompt, then one for each weight version.
std::vector<Segment> MakeSegments(int64_t prompt_tokens, const std::vector<VersionRun>& versions) {
  std::vector<Segment> segments = {{.begin = 0, .length = prompt_tokens}};
  for (const VersionRun& run : versions) {
    segments.push_back({.begin = segments.back().begin + segments.back().length,
                        .length = run.tokens,
                        .trained = true,
                        .weight_version = run.version});
  }
  return segments;
}

}  // namespace

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

namespace {

absl::StatusOr<Sample> ReadSample(const TokenFile& file, const BufferedGroup& group, size_t index) {
  const BufferedSample& known = group.samples[index];
  TANDEM_ASSIGN_OR_RETURN(TokenArrays arrays,
                          file.Read(known.offset, known.tokens(), known.log_probs));
  Sample sample{.sample_id = known.sample_id,
                .index = static_cast<int64_t>(index),
                .tokens = group.prompt->tokens,
                .prompt_tokens = std::ssize(group.prompt->tokens),
                .log_probs = std::move(arrays.log_probs),
                .versions = PerToken(known.versions),
                .finish_reason = known.finish,
                .temperature = known.temperature,
                .off_support = known.off_support};
  sample.tokens.insert(sample.tokens.end(), arrays.tokens.begin(), arrays.tokens.end());
  sample.segments = MakeSegments(sample.prompt_tokens, known.versions);
  return sample;
}

}  // namespace

absl::Status ReadGroup(const TokenFile& file,
                       const BufferedGroup& group,
                       int64_t position,
                       const std::function<absl::Status(Sample)>& take) {
  for (size_t i = 0; i < group.samples.size(); ++i) {
    TANDEM_ASSIGN_OR_RETURN(Sample sample, ReadSample(file, group, i));
    sample.group = position;
    TANDEM_RETURN_IF_ERROR(take(std::move(sample)));
  }
  return absl::OkStatus();
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
