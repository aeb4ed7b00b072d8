#include "controller/rollouts/parity_probe.h"

#include <algorithm>
#include <bit>

#include "common/base/philox.h"
#include "common/base/status.h"

namespace tandem {
namespace {

constexpr uint64_t kSeed = 0x70726f6265;

int IncarnationOf(uint64_t sample_id) { return static_cast<int>(sample_id & 0xfffu); }
int64_t GroupOf(int rank) { return -1 - rank; }
int RankOf(int64_t group) { return static_cast<int>(-1 - group); }

std::vector<int32_t> DrawPrompt(uint64_t stream, int64_t tokens, int64_t vocab_limit) {
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < tokens; ++i) {
    const uint32_t word = RandomWords(kSeed, stream, static_cast<uint64_t>(i))[0];
    prompt.push_back(static_cast<int32_t>(word % static_cast<uint64_t>(vocab_limit)));
  }
  return prompt;
}

}  // namespace

ParityProbe::ParityProbe(const ParityProbeOptions& options)
    : topology_(options.topology),
      rollouts_(options.rollouts ? options.rollouts
                                 : std::make_shared<ActiveRollouts>(options.topology.rollouts)),
      temperature_(options.temperature),
      response_tokens_(std::min(kProbeResponseTokens, options.max_tokens - 1)) {
  for (const int64_t tokens : ProbeSequences(options.max_tokens)) {
    prompts_.push_back(DrawPrompt(prompts_.size(), tokens - response_tokens_, options.vocab_limit));
  }
}

uint64_t ParityProbe::IdOf(int rank, size_t prompt, int attempt) const {
  const auto earlier = static_cast<size_t>(rank / topology_.trainers);  // of the same trainer
  return MakeSampleId(earlier * prompts_.size() + prompt, kProbeEpoch,
                      static_cast<uint64_t>(attempt));
}

GroupRequest ParityProbe::Ask(int rank, size_t prompt, int attempt) {
  asked_[{rank, prompt}] = attempt + 1;
  return {.request_id = fmt::format("{}-probe-{}-{}-{}", step_, rank, prompt, attempt),
          .version = version_,
          .prompt = prompts_[prompt],
          .sample_ids = {IdOf(rank, prompt, attempt)},
          .params = {.temperature = temperature_,
                     .max_tokens = response_tokens_,
                     .seed = kSeed,
                     .ignore_eos = true},
          .group = GroupOf(rank),
          .rank = rank,
          .log_probs = true};
}

std::vector<GroupRequest> ParityProbe::Begin(int64_t step, int64_t version) {
  const MutexLock lock(probe_mutex_);
  step_ = step;
  version_ = version;
  attempt_ = 0;
  asked_.clear();
  results_.clear();
  std::vector<GroupRequest> groups;
  left_out_before_.clear();
  for (int rank = 0; rank < topology_.rollouts; ++rank) {
    left_out_before_[rank] = rollouts_->TimesLeftOut(rank);
  }
  for (const int rank : rollouts_->Ranks()) {
    for (size_t p = 0; p < prompts_.size(); ++p) groups.push_back(Ask(rank, p, 0));
  }
  return groups;
}

std::vector<GroupRequest> ParityProbe::Reissue(int rank) {
  const MutexLock lock(probe_mutex_);
  std::vector<GroupRequest> groups;
  for (size_t p = 0; p < prompts_.size(); ++p) {
    const int attempts = asked_[{rank, p}];
    // A request that was not answered is issued again unchanged.
    const bool answered = attempts > 0 && results_.contains({rank, IdOf(rank, p, attempts - 1)});
    if (answered) groups.push_back(Ask(rank, p, attempts));
  }
  return groups;
}

int ParityProbe::attempts() const {
  const MutexLock lock(probe_mutex_);
  int most = 0;
  for (const auto& [key, attempts] : asked_) most = std::max(most, attempts);
  return most;
}

void ParityProbe::SelectAttempt(int attempt) {
  const MutexLock lock(probe_mutex_);
  attempt_ = attempt;
}

absl::Status ParityProbe::Put(Sample sample) {
  const int rank = RankOf(sample.group);
  const int64_t tokens = sample.response_tokens();
  if (tokens < 1 || std::ssize(sample.log_probs) != tokens ||
      std::ssize(sample.versions) != tokens) {
    return Internal("the probe of rollout {} has {} response tokens, {} log-probs and {} versions",
                    rank, tokens, sample.log_probs.size(), sample.versions.size());
  }
  const MutexLock lock(probe_mutex_);
  for (const int64_t version : sample.versions) {
    if (version == version_) continue;
    return MakeStatus(absl::StatusCode::kDataLoss,
                      "weights of version {} sampled the probe of rollout {}, version {} was asked "
                      "for; this is a defect of the rollout",
                      version, rank, version_);
  }
  const Key key{rank, sample.sample_id};
  results_[key] = {.sample = std::move(sample)};
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Sample>> ParityProbe::Samples(int64_t step, int trainer) const {
  const MutexLock lock(probe_mutex_);
  if (step != step_) {
    return MakeStatus(absl::StatusCode::kNotFound,
                      "the probe of step {} has ended: step {} is in progress", step, step_);
  }
  std::vector<Sample> samples;
  for (const auto& [key, pair] : results_) {
    const bool own = topology_.PublisherOf(key.first) == trainer;
    if (own && IncarnationOf(key.second) == attempt_) samples.push_back(pair.sample);
  }
  return samples;
}

absl::Status ParityProbe::PutLogProbs(int64_t step,
                                      int trainer,
                                      uint64_t sample_id,
                                      const std::vector<float>& log_probs) {
  const MutexLock lock(probe_mutex_);
  const auto found = std::find_if(results_.begin(), results_.end(), [&](const auto& result) {
    const auto& [rank, id] = result.first;
    return id == sample_id && topology_.PublisherOf(rank) == trainer;
  });
  if (step != step_ || found == results_.end()) {
    return MakeStatus(absl::StatusCode::kNotFound,
                      "step {} has no probe sample {:#x} for trainer {}", step, sample_id, trainer);
  }
  if (std::ssize(log_probs) != found->second.sample.response_tokens()) {
    return InvalidArgument("probe sample {:#x}: {} log-probs for {} response tokens", sample_id,
                           log_probs.size(), found->second.sample.response_tokens());
  }
  found->second.trainer = log_probs;
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ParityProbe::Compare() const {
  const MutexLock lock(probe_mutex_);
  size_t expected = 0, missing = 0;
  for (const auto& [key, attempts] : asked_) {
    const auto& [rank, prompt] = key;
    if (rollouts_->TimesLeftOut(rank) != left_out_before_.at(rank)) continue;
    expected += static_cast<size_t>(attempts);
    for (int attempt = 0; attempt < attempts; ++attempt) {
      if (!results_.contains({rank, IdOf(rank, prompt, attempt)})) ++missing;
    }
  }
  if (missing > 0) {
    return Internal("{} of {} probe samples of step {} were returned", expected - missing, expected,
                    step_);
  }
  int64_t tokens = 0;
  for (const auto& [key, pair] : results_) {
    const auto& [rank, id] = key;
    const int trainer = topology_.PublisherOf(rank);
    const std::vector<float>& rollout = pair.sample.log_probs;
    if (pair.trainer.size() != rollout.size()) {
      return Internal("trainer {} sent no log-probs for probe sample {:#x} of step {}", trainer, id,
                      step_);
    }
    for (size_t i = 0; i < rollout.size(); ++i, ++tokens) {
      if (std::bit_cast<uint32_t>(rollout[i]) == std::bit_cast<uint32_t>(pair.trainer[i])) continue;
      return MakeStatus(
          absl::StatusCode::kDataLoss,
          "the probe of step {} differs: rollout {} says log-prob {:.9g} at position {} of sample "
          "{:#x}, trainer {} says {:.9g}; with equal weights (version {}) and tokens one of the "
          "two computes wrongly",
          step_, rank, rollout[i], pair.sample.prompt_tokens + static_cast<int64_t>(i), id, trainer,
          pair.trainer[i], version_);
    }
  }
  return tokens;
}

}  // namespace tandem
