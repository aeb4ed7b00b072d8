// One round of the pool: what is asked of the rollouts, and what comes back.
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

// The first index at which two arrays differ in their bits; the shorter one's size where they do
// not.
template <typename T>
size_t FirstDifference(const std::vector<T>& known, const T* now) {
  size_t i = 0;
  while (i < known.size() && std::memcmp(&known[i], now + i, sizeof(T)) == 0) ++i;
  return i;
}

// What the requests of a round read; it stands for itself, whatever the pool does meanwhile.
class ContinuationReader {
 public:
  explicit ContinuationReader(std::shared_ptr<const PoolFile> file) : file_(std::move(file)) {}

  void Add(const PooledSample& sample, int64_t allowed) {
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
      const PooledSample& sample = found->second.sample;
      TANDEM_ASSIGN_OR_RETURN(PoolArrays arrays,
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
    PooledSample sample;
    int64_t allowed = 0;
  };
  std::shared_ptr<const PoolFile> file_;
  std::map<uint64_t, Known> known_;
};

}  // namespace

std::vector<RoundPart> SamplePool::PlanGroup(const PooledGroup& group,
                                             const RoundOrder& order) const {
  std::vector<RoundPart> parts;
  const bool due = group.oldest_version() <= order.due_version;
  for (const PooledSample& sample : group.samples) {
    RoundPart& part = parts.emplace_back();
    if (sample.finished()) continue;
    part = {.issued = true, .sent = true, .tokens_before = sample.tokens()};
    part.is_final = due || sample.versions_before(order.version) >= order.max_versions - 1;
    int64_t allowed = part.is_final ? 0 : order.cap;
    if (order.cuts) {
      const auto cut = order.cuts->find(sample.sample_id);
      allowed = cut == order.cuts->end() ? 0 : cut->second - part.tokens_before;
      part.sent = cut == order.cuts->end() || allowed > 0;
    }
    const int64_t left = options_.sampling.max_tokens - part.tokens_before;
    // What reaches the budget is finished by length, not cut.
    part.allowed = allowed < left ? allowed : 0;
  }
  return parts;
}

absl::Status SamplePool::CheckCuts(const RoundOrder& order) const {
  if (!order.cuts) return absl::OkStatus();
  RoundCuts unknown = *order.cuts;
  int64_t groups = 0;
  for (const auto& [number, group] : state_.groups) {
    if (group.whole()) continue;
    if (order.groups > 0 && groups++ == order.groups) break;
    const std::vector<RoundPart> parts = PlanGroup(group, order);
    for (size_t i = 0; i < parts.size(); ++i) {
      const uint64_t id = group.samples[i].sample_id;
      const auto cut = unknown.find(id);
      if (!parts[i].issued || cut == unknown.end()) continue;
      const bool fits =
          cut->second >= parts[i].tokens_before && cut->second < options_.sampling.max_tokens;
      if (!fits) {
        return FailedPrecondition(
            "step {}, round {}: sample {:#x} has {} tokens, and cannot have been cut at {}",
            order.step, order.round, id, parts[i].tokens_before, cut->second);
      }
      unknown.erase(cut);
    }
  }
  if (unknown.empty()) return absl::OkStatus();
  return FailedPrecondition(
      "step {}, round {}: sample {:#x}, cut at {} tokens, is not in this round", order.step,
      order.round, unknown.begin()->first, unknown.begin()->second);
}

absl::Status SamplePool::CheckVersions(const RoundOrder& order) const {
  for (const auto& [number, group] : state_.groups) {
    for (const PooledSample& sample : group.samples) {
      if (sample.versions.empty() || sample.versions.back().version <= order.version) continue;
      return FailedPrecondition(
          "sample {:#x} has tokens of weight version {}, and step {} samples with version {}: the "
          "pool is not of this point of the run",
          sample.sample_id, sample.versions.back().version, order.step, order.version);
    }
  }
  return absl::OkStatus();
}

GroupRequest SamplePool::MakeRequest(int64_t number,
                                     const PooledGroup& group,
                                     const std::vector<size_t>& positions,
                                     const RoundOrder& order) const {
  const bool is_final = group.samples[positions.front()].round.is_final;
  GroupRequest request{.request_id = fmt::format("{}-{}-{}{}", order.step, order.round, number,
                                                 is_final ? "-final" : ""),
                       .version = order.version,
                       .prompt = group.prompt->tokens,
                       .params = options_.sampling,
                       .group = number,
                       .interruptible = !is_final && !order.cuts};
  ContinuationReader reader(state_.file);
  bool plain = true;  // as without partial rollout
  for (const size_t i : positions) {
    const PooledSample& sample = group.samples[i];
    request.sample_ids.push_back(sample.sample_id);
    plain = plain && sample.round.tokens_before == 0 && sample.round.allowed == 0;
    reader.Add(sample, sample.round.allowed);
  }
  if (!plain) request.load_continued = std::move(reader);
  return request;
}

absl::StatusOr<std::vector<GroupRequest>> SamplePool::Requests(const RoundOrder& order) {
  TANDEM_RETURN_IF_ERROR(CheckCuts(order));
  TANDEM_RETURN_IF_ERROR(CheckVersions(order));
  Compact();
  order_ = order;
  std::vector<GroupRequest> requests;
  int64_t groups = 0;
  for (auto& [number, group] : state_.groups) {
    for (PooledSample& sample : group.samples) sample.round = {};
    if (group.whole() || (order.groups > 0 && groups == order.groups)) continue;
    ++groups;
    const std::vector<RoundPart> parts = PlanGroup(group, order);
    std::vector<size_t> cuttable, last;
    for (size_t i = 0; i < parts.size(); ++i) {
      RoundPart& part = group.samples[i].round;
      part = parts[i];
      part.out = part.sent;
      if (part.sent) (part.is_final ? last : cuttable).push_back(i);
    }
    for (const auto& positions : {cuttable, last}) {
      if (!positions.empty()) requests.push_back(MakeRequest(number, group, positions, order));
    }
  }
  return requests;
}

absl::Status SamplePool::CheckArrays(const Sample& sample, const PooledGroup& group) const {
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

absl::Status SamplePool::CheckGrowth(const Sample& sample, const PooledSample& known) const {
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
    if (sample.versions[i] != order_.version) {
      return Defect(sample, fmt::format("weights of version {} sampled response token {}, version "
                                        "{} was asked for",
                                        sample.versions[i], i, order_.version));
    }
    const int32_t id = sample.tokens[static_cast<size_t>(sample.prompt_tokens) + i];
    if (id >= 0 && id < options_.vocab_limit) continue;
    return Defect(
        sample, fmt::format("response token {} has the id {}, and the tokenizer has {} ids", i, id,
                            options_.vocab_limit));
  }
  return absl::OkStatus();
}

absl::Status SamplePool::CheckBeginning(const Sample& sample, const PooledSample& known) const {
  TANDEM_ASSIGN_OR_RETURN(
      const PoolArrays before,
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

absl::Status SamplePool::Put(const Sample& sample) {
  const auto found = state_.groups.find(sample.group);
  PooledSample* known = nullptr;
  if (found != state_.groups.end()) {
    for (PooledSample& other : found->second.samples) {
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

RoundCounts SamplePool::round() const {
  RoundCounts counts;
  for (const auto& [number, group] : state_.groups) {
    bool any = false, again[2] = {false, false};  // by whether final: a request each
    for (const PooledSample& sample : group.samples) {
      const RoundPart& part = sample.round;
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

RoundCuts SamplePool::CutSamples() const {
  RoundCuts cuts;
  for (const auto& [number, group] : state_.groups) {
    for (const PooledSample& sample : group.samples) {
      if (sample.round.issued && !sample.finished()) cuts[sample.sample_id] = sample.tokens();
    }
  }
  return cuts;
}

}  // namespace tandem
