// Rounds of the rollout buffer: plans the requests of a round and checks the samples that return.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>

#include "common/base/status.h"
#include "controller/partial_rollout/buffer/rollout_buffer.h"

namespace tandem {
namespace {

absl::Status Defect(const Sample& sample, const std::string& what) {
  return MakeStatus(absl::StatusCode::kDataLoss,
                    "sample {:#x}: {}; this is a defect of the rollout", sample.sample_id, what);
}

// The first index at which the bits of two arrays differ; the size of `known` where they are equal.
template <typename T>
size_t FirstDifference(const std::vector<T>& known, const T* now) {
  size_t i = 0;
  while (i < known.size() && std::memcmp(&known[i], now + i, sizeof(T)) == 0) ++i;
  return i;
}

// Reads the tokens that a request continues from. It keeps what it needs, so that it stays valid
// when the buffer changes.
class ContinuationReader {
 public:
  explicit ContinuationReader(std::shared_ptr<const TokenFile> file) : file_(std::move(file)) {}

  void Add(const BufferedSample& sample, int64_t allowed) {
    known_[sample.sample_id] = {.sample = sample, .allowed = allowed};
  }
  absl::StatusOr<std::vector<Continuation>> operator()(
      const std::vector<uint64_t>& sample_ids) const {
    std::vector<Continuation> all;
    for (const uint64_t id : sample_ids) {
      const auto found = known_.find(id);
      if (found == known_.end()) {
        return Internal("sample {:#x} is none of the request that it is read for", id);
      }
      const BufferedSample& sample = found->second.sample;
      TANDEM_ASSIGN_OR_RETURN(TokenArrays arrays,
                              file_->Read(sample.offset, sample.tokens(), sample.log_probs));
      all.push_back({.tokens = std::move(arrays.tokens),
                     .log_probs = std::move(arrays.log_probs),
                     .versions = PerToken(sample.versions),
                     .max_new_tokens = found->second.allowed});
    }
    return all;
  }

 private:
  struct Known {
    BufferedSample sample;
    int64_t allowed = 0;
  };
  std::shared_ptr<const TokenFile> file_;
  std::map<uint64_t, Known> known_;
};

}  // namespace

std::vector<PlannedSample> RolloutBuffer::PlanGroup(const BufferedGroup& group,
                                                    const RoundSpec& spec) const {
  std::vector<PlannedSample> parts;
  const bool overdue = group.oldest_version() <= spec.due_version;
  for (const BufferedSample& sample : group.samples) {
    PlannedSample& part = parts.emplace_back();
    if (sample.finished()) continue;
    part = {.issued = true, .sent = true, .tokens_before = sample.tokens()};
    part.is_final = overdue || sample.versions_before(spec.version) >= spec.max_versions - 1;
    int64_t allowed = part.is_final ? 0 : spec.cap;
    if (spec.interruption_points) {
      const auto cut = spec.interruption_points->find(sample.sample_id);
      allowed = cut == spec.interruption_points->end() ? 0 : cut->second - part.tokens_before;
      part.sent = cut == spec.interruption_points->end() || allowed > 0;
    }
    const int64_t left = options_.sampling.max_tokens - part.tokens_before;
    // A sample that reaches its budget is finished by length, not interrupted.
    part.allowed = allowed < left ? allowed : 0;
  }
  return parts;
}

absl::Status RolloutBuffer::CheckInterruptionPoints(const RoundSpec& spec) const {
  if (!spec.interruption_points) return absl::OkStatus();
  InterruptionPoints unknown = *spec.interruption_points;
  int64_t groups = 0;
  for (const auto& [number, group] : state_.groups) {
    if (group.complete()) continue;
    if (spec.groups > 0 && groups++ == spec.groups) break;
    const std::vector<PlannedSample> parts = PlanGroup(group, spec);
    for (size_t i = 0; i < parts.size(); ++i) {
      const uint64_t id = group.samples[i].sample_id;
      const auto cut = unknown.find(id);
      if (!parts[i].issued || cut == unknown.end()) continue;
      const bool fits =
          cut->second >= parts[i].tokens_before && cut->second < options_.sampling.max_tokens;
      if (!fits) {
        return FailedPrecondition(
            "step {}, round {}: sample {:#x} has {} tokens, and cannot have been cut at {}",
            spec.step, spec.round, id, parts[i].tokens_before, cut->second);
      }
      unknown.erase(cut);
    }
  }
  if (unknown.empty()) return absl::OkStatus();
  return FailedPrecondition(
      "step {}, round {}: sample {:#x}, cut at {} tokens, is not in this round", spec.step,
      spec.round, unknown.begin()->first, unknown.begin()->second);
}

absl::Status RolloutBuffer::CheckVersions(const RoundSpec& spec) const {
  for (const auto& [number, group] : state_.groups) {
    for (const BufferedSample& sample : group.samples) {
      if (sample.versions.empty() || sample.versions.back().version <= spec.version) continue;
      return FailedPrecondition(
          "sample {:#x} has tokens of weight version {}, and step {} samples with version {}: the "
          "pool is not of this point of the run",
          sample.sample_id, sample.versions.back().version, spec.step, spec.version);
    }
  }
  return absl::OkStatus();
}

GroupRequest RolloutBuffer::MakeRequest(int64_t number,
                                        const BufferedGroup& group,
                                        const std::vector<size_t>& positions,
                                        const RoundSpec& spec) const {
  const bool is_final = group.samples[positions.front()].round.is_final;
  GroupRequest request{.request_id = fmt::format("{}-{}-{}{}", spec.step, spec.round, number,
                                                 is_final ? "-final" : ""),
                       .version = spec.version,
                       .prompt = group.prompt->tokens,
                       .params = options_.sampling,
                       .group = number,
                       .interruptible = !is_final && !spec.interruption_points};
  ContinuationReader reader(state_.file);
  bool plain = true;  // the same request as without partial rollout
  for (const size_t i : positions) {
    const BufferedSample& sample = group.samples[i];
    request.sample_ids.push_back(sample.sample_id);
    plain = plain && sample.round.tokens_before == 0 && sample.round.allowed == 0;
    reader.Add(sample, sample.round.allowed);
  }
  if (!plain) request.load_continued = std::move(reader);
  return request;
}

absl::StatusOr<std::vector<GroupRequest>> RolloutBuffer::Requests(const RoundSpec& spec) {
  TANDEM_RETURN_IF_ERROR(CheckInterruptionPoints(spec));
  TANDEM_RETURN_IF_ERROR(CheckVersions(spec));
  Compact();
  spec_ = spec;
  std::vector<GroupRequest> requests;
  int64_t groups = 0;
  for (auto& [number, group] : state_.groups) {
    for (BufferedSample& sample : group.samples) sample.round = {};
    if (group.complete() || (spec.groups > 0 && groups == spec.groups)) continue;
    ++groups;
    const std::vector<PlannedSample> parts = PlanGroup(group, spec);
    std::vector<size_t> interruptible, final_samples;
    for (size_t i = 0; i < parts.size(); ++i) {
      PlannedSample& part = group.samples[i].round;
      part = parts[i];
      part.out = part.sent;
      if (part.sent) (part.is_final ? final_samples : interruptible).push_back(i);
    }
    for (const auto& positions : {interruptible, final_samples}) {
      if (!positions.empty()) requests.push_back(MakeRequest(number, group, positions, spec));
    }
  }
  return requests;
}

absl::Status RolloutBuffer::CheckArrays(const Sample& sample, const BufferedGroup& group) const {
  const auto responses = static_cast<size_t>(std::max<int64_t>(0, sample.response_tokens()));
  const size_t log_probs = options_.log_probs ? responses : 0;
  if (sample.response_tokens() < 0 || sample.versions.size() != responses ||
      sample.log_probs.size() != log_probs) {
    return InvalidArgument(
        "sample {:#x}: {} tokens, {} of the prompt, {} log-probs and {} versions do not fit",
        sample.sample_id, sample.tokens.size(), sample.prompt_tokens, sample.log_probs.size(),
        sample.versions.size());
  }
  if (sample.finish_reason == FinishReason::kNone) {
    return InvalidArgument("sample {:#x} came back without saying why it ended", sample.sample_id);
  }
  const std::vector<int32_t>& prompt = group.prompt->tokens;
  if (sample.prompt_tokens != std::ssize(prompt) ||
      FirstDifference(prompt, sample.tokens.data()) != prompt.size()) {
    return Defect(sample, "it came back with another prompt");
  }
  return absl::OkStatus();
}

absl::Status RolloutBuffer::CheckGrowth(const Sample& sample, const BufferedSample& known) const {
  const int64_t before = known.round.tokens_before, now = sample.response_tokens();
  if (now < before) {
    return Defect(sample,
                  fmt::format("it went on from {} tokens and came back with {}", before, now));
  }
  const int64_t budget = options_.sampling.max_tokens;
  const int64_t most = known.round.allowed > 0 ? before + known.round.allowed : budget;
  if (now > most) {
    return Defect(sample, fmt::format("it has {} response tokens, and {} were allowed", now, most));
  }
  for (size_t i = static_cast<size_t>(before); i < static_cast<size_t>(now); ++i) {
    if (sample.versions[i] != spec_.version) {
      return Defect(sample, fmt::format("weights of version {} sampled response token {}, version "
                                        "{} was asked for",
                                        sample.versions[i], i, spec_.version));
    }
    const int32_t id = sample.tokens[static_cast<size_t>(sample.prompt_tokens) + i];
    if (id >= 0 && id < options_.vocab_limit) continue;
    return Defect(
        sample, fmt::format("response token {} has the id {}, and the tokenizer has {} ids", i, id,
                            options_.vocab_limit));
  }
  return absl::OkStatus();
}

absl::Status RolloutBuffer::CheckBeginning(const Sample& sample,
                                           const BufferedSample& known) const {
  TANDEM_ASSIGN_OR_RETURN(
      const TokenArrays before,
      state_.file->Read(known.offset, known.round.tokens_before, known.log_probs));
  const auto differs = [&](const char* what, size_t at) {
    return Defect(sample, fmt::format("the {} of response token {} is not the one that it went on "
                                      "with",
                                      what, at));
  };
  size_t at = FirstDifference(before.tokens, sample.tokens.data() + sample.prompt_tokens);
  if (at != before.tokens.size()) return differs("id", at);
  at = FirstDifference(before.log_probs, sample.log_probs.data());
  if (at != before.log_probs.size()) return differs("log-prob", at);
  const std::vector<int64_t> versions = PerToken(known.versions);
  at = FirstDifference(versions, sample.versions.data());
  return at == versions.size() ? absl::OkStatus() : differs("weight version", at);
}

absl::Status RolloutBuffer::Put(const Sample& sample) {
  const auto found = state_.groups.find(sample.group);
  BufferedSample* known = nullptr;
  if (found != state_.groups.end()) {
    for (BufferedSample& other : found->second.samples) {
      if (other.sample_id == sample.sample_id) known = &other;
    }
  }
  if (known == nullptr) {
    return MakeStatus(absl::StatusCode::kNotFound, "sample {:#x} of group {} is not in the pool",
                      sample.sample_id, sample.group);
  }
  if (!known->round.out) {
    return MakeStatus(absl::StatusCode::kAlreadyExists,
                      "sample {:#x} came twice in a round, or was not asked for", sample.sample_id);
  }
  TANDEM_RETURN_IF_ERROR(CheckArrays(sample, found->second));
  TANDEM_RETURN_IF_ERROR(CheckGrowth(sample, *known));
  TANDEM_RETURN_IF_ERROR(CheckBeginning(sample, *known));

  if (sample.response_tokens() > known->round.tokens_before) {
    TANDEM_ASSIGN_OR_RETURN(
        known->offset,
        state_.file->Append({{sample.tokens.begin() + sample.prompt_tokens, sample.tokens.end()},
                             sample.log_probs}));
  }
  known->round.out = false;
  known->versions = RunsOf(sample.versions);
  known->log_probs = !sample.log_probs.empty();
  known->temperature = sample.temperature;
  known->off_support = known->off_support || sample.off_support;
  const bool ended =
      sample.finish_reason == FinishReason::kStop || sample.finish_reason == FinishReason::kLength;
  if (ended) {
    known->finish = sample.finish_reason;
  } else if (sample.response_tokens() >= options_.sampling.max_tokens) {
    known->finish = FinishReason::kLength;
  }
  return absl::OkStatus();
}

RoundCounts RolloutBuffer::round() const {
  RoundCounts counts;
  for (const auto& [number, group] : state_.groups) {
    bool any = false, again[2] = {false, false};  // by whether final: a request each
    for (const BufferedSample& sample : group.samples) {
      const PlannedSample& part = sample.round;
      if (!part.issued) continue;
      any = true;
      ++counts.samples;
      counts.final_samples += part.is_final ? 1 : 0;
      counts.cut_samples += sample.finished() ? 0 : 1;
      counts.tokens += sample.tokens();
      counts.generated_tokens += sample.tokens() - part.tokens_before;
      if (!part.sent || part.out || part.tokens_before == 0) continue;
      counts.prefilled_again_tokens += part.tokens_before;
      again[part.is_final ? 1 : 0] = true;
    }
    counts.groups += any ? 1 : 0;
    counts.prefilled_again_tokens += (again[0] + again[1]) * std::ssize(group.prompt->tokens);
  }
  return counts;
}

InterruptionPoints RolloutBuffer::GetInterruptionPoints() const {
  InterruptionPoints points;
  for (const auto& [number, group] : state_.groups) {
    for (const BufferedSample& sample : group.samples) {
      if (sample.round.issued && !sample.finished()) points[sample.sample_id] = sample.tokens();
    }
  }
  return points;
}

}  // namespace tandem
