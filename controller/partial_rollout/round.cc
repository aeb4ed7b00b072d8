#include "controller/partial_rollout/round.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>

#include "common/base/status.h"

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
        return Internal("sample {:#x} is not in the request for which it is read", id);
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

absl::Status CheckVersions(const RolloutBuffer& buffer, const RoundSpec& spec) {
  for (const auto& [number, group] : buffer.state().groups) {
    for (const BufferedSample& sample : group.samples) {
      if (sample.versions.empty() || sample.versions.back().version <= spec.version) continue;
      return FailedPrecondition(
          "sample {:#x} has tokens of weight version {}, and step {} samples with version {}: the "
          "rollout buffer belongs to another point of the run",
          sample.sample_id, sample.versions.back().version, spec.step, spec.version);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Round> Round::Plan(RolloutBuffer& buffer, RoundSpec spec) {
  TANDEM_RETURN_IF_ERROR(CheckVersions(buffer, spec));
  buffer.Compact();
  Round round(buffer, std::move(spec));
  int64_t groups = 0;
  for (const auto& [number, group] : buffer.state().groups) {
    if (group.complete()) continue;
    const bool is_due = round.spec_.due_groups.contains(number);
    // The step waits for those that are due, however many are older.
    if (round.spec_.groups > 0 && groups++ >= round.spec_.groups && !is_due) continue;
    round.PlanGroup(group, is_due);
  }
  return round;
}

void Round::PlanGroup(const BufferedGroup& group, bool is_due) {
  const int64_t budget = buffer_->options().sampling.max_tokens;
  for (const BufferedSample& sample : group.samples) {
    if (sample.finished()) continue;
    PlannedSample& plan = samples_[sample.sample_id];
    plan = {.sent = true, .tokens_before = sample.tokens()};
    plan.is_final = is_due || sample.versions_before(spec_.version) >= spec_.max_versions - 1;
    int64_t allowed = plan.is_final ? 0 : spec_.cap;
    if (spec_.interruption_points) {
      const auto point = spec_.interruption_points->find(sample.sample_id);
      const bool interrupted = point != spec_.interruption_points->end();
      allowed = interrupted ? point->second - plan.tokens_before : 0;
      plan.sent = !interrupted || allowed > 0;
    }
    // A sample that reaches its budget is finished by length, not interrupted.
    plan.allowed = allowed < budget - plan.tokens_before ? allowed : 0;
    plan.out = plan.sent;
  }
}

absl::Status Round::CheckInterruptionPoints() const {
  if (!spec_.interruption_points) return absl::OkStatus();
  for (const auto& [id, point] : *spec_.interruption_points) {
    const auto planned = samples_.find(id);
    if (planned == samples_.end()) {
      return FailedPrecondition(
          "step {}, round {}: sample {:#x}, interrupted at {} tokens, is not in this round",
          spec_.step, spec_.round, id, point);
    }
    const int64_t before = planned->second.tokens_before;
    if (point < before || point >= buffer_->options().sampling.max_tokens) {
      return FailedPrecondition(
          "step {}, round {}: sample {:#x} has {} tokens, and cannot have been interrupted at {}",
          spec_.step, spec_.round, id, before, point);
    }
  }
  return absl::OkStatus();
}

GroupRequest Round::MakeRequest(int64_t number,
                                const BufferedGroup& group,
                                const std::vector<size_t>& positions) const {
  const bool is_final = samples_.at(group.samples[positions.front()].sample_id).is_final;
  GroupRequest request{.request_id = fmt::format("{}-{}-{}{}", spec_.step, spec_.round, number,
                                                 is_final ? "-final" : ""),
                       .version = spec_.version,
                       .prompt = group.prompt->tokens,
                       .params = buffer_->options().sampling,
                       .group = number,
                       .interruptible = !is_final && !spec_.interruption_points};
  ContinuationReader reader(buffer_->state().file);
  bool plain = true;  // the same request as without partial rollout
  for (const size_t i : positions) {
    const BufferedSample& sample = group.samples[i];
    request.sample_ids.push_back(sample.sample_id);
    const PlannedSample& planned = samples_.at(sample.sample_id);
    plain = plain && planned.tokens_before == 0 && planned.allowed == 0;
    reader.Add(sample, planned.allowed);
  }
  if (!plain) request.load_continued = std::move(reader);
  return request;
}

std::vector<GroupRequest> Round::MakeRequests() const {
  std::vector<GroupRequest> requests;
  for (const auto& [number, group] : buffer_->state().groups) {
    std::vector<size_t> interruptible, final_samples;
    for (size_t i = 0; i < group.samples.size(); ++i) {
      const auto planned = samples_.find(group.samples[i].sample_id);
      if (planned == samples_.end() || !planned->second.sent) continue;
      (planned->second.is_final ? final_samples : interruptible).push_back(i);
    }
    for (const auto& positions : {interruptible, final_samples}) {
      if (!positions.empty()) requests.push_back(MakeRequest(number, group, positions));
    }
  }
  return requests;
}

absl::Status Round::CheckGrowth(const Sample& sample, const PlannedSample& planned) const {
  const BufferOptions& options = buffer_->options();
  const int64_t before = planned.tokens_before, now = sample.response_tokens();
  if (std::ssize(sample.log_probs) != (options.log_probs ? now : 0)) {
    return Defect(sample, fmt::format("it has {} log-probs for {} response tokens, and "
                                      "rollout.calculate_log_probs is {}",
                                      sample.log_probs.size(), now, options.log_probs));
  }
  if (now < before) {
    return Defect(sample, fmt::format("requested with {} tokens, returned with {}", before, now));
  }
  const int64_t budget = options.sampling.max_tokens;
  const int64_t most = planned.allowed > 0 ? before + planned.allowed : budget;
  if (now > most) {
    return Defect(sample, fmt::format("it has {} response tokens, and {} were allowed", now, most));
  }
  for (size_t i = static_cast<size_t>(before); i < static_cast<size_t>(now); ++i) {
    if (sample.versions[i] == spec_.version) continue;
    return Defect(sample, fmt::format("weights of version {} sampled response token {}, version {} "
                                      "was asked for",
                                      sample.versions[i], i, spec_.version));
  }
  return absl::OkStatus();
}

absl::Status Round::CheckBeginning(const Sample& sample, const BufferedSample& known) const {
  TANDEM_ASSIGN_OR_RETURN(
      const TokenArrays before,
      buffer_->state().file->Read(known.offset, known.tokens(), known.log_probs));
  const auto differs = [&](const char* what, size_t at) {
    return Defect(sample,
                  fmt::format("the {} of response token {} is not the one that it continued "
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

absl::Status Round::Put(const Sample& sample) {
  TANDEM_ASSIGN_OR_RETURN(const BufferPlace place, buffer_->Find(sample));
  const auto planned = samples_.find(sample.sample_id);
  if (planned == samples_.end() || !planned->second.out) {
    return MakeStatus(absl::StatusCode::kAlreadyExists,
                      "sample {:#x} was returned twice in a round, or was not requested",
                      sample.sample_id);
  }
  TANDEM_RETURN_IF_ERROR(CheckGrowth(sample, planned->second));
  TANDEM_RETURN_IF_ERROR(CheckBeginning(sample, place.sample()));
  TANDEM_RETURN_IF_ERROR(buffer_->Extend(sample));
  planned->second.out = false;
  return absl::OkStatus();
}

RoundCounts Round::Counts() const {
  RoundCounts counts;
  for (const auto& [number, group] : buffer_->state().groups) {
    bool any = false,
         again[2] = {
             false,
             false};  // indexed by whether a sample is final: each kind is a request of its own
    for (const BufferedSample& sample : group.samples) {
      const auto found = samples_.find(sample.sample_id);
      if (found == samples_.end()) continue;
      const PlannedSample& planned = found->second;
      any = true;
      ++counts.samples;
      counts.final_samples += planned.is_final ? 1 : 0;
      counts.interrupted_samples += sample.finished() ? 0 : 1;
      counts.tokens += sample.tokens();
      counts.generated_tokens += sample.tokens() - planned.tokens_before;
      if (!planned.sent || planned.out || planned.tokens_before == 0) continue;
      counts.prefilled_again_tokens += planned.tokens_before;
      again[planned.is_final ? 1 : 0] = true;
    }
    counts.groups += any ? 1 : 0;
    counts.prefilled_again_tokens += (again[0] + again[1]) * std::ssize(group.prompt->tokens);
  }
  return counts;
}

InterruptionPoints Round::GetInterruptionPoints() const {
  InterruptionPoints points;
  for (const auto& [number, group] : buffer_->state().groups) {
    for (const BufferedSample& sample : group.samples) {
      const bool unfinished = samples_.contains(sample.sample_id) && !sample.finished();
      if (unfinished) points[sample.sample_id] = sample.tokens();
    }
  }
  return points;
}

}  // namespace tandem
