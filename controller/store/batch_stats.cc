#include "controller/store/batch_stats.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "controller/store/saved_batch.h"

namespace tandem {
namespace {

constexpr size_t kNamed = 5;     // non-finite values listed per field
constexpr int64_t kContext = 6;  // tokens shown on each side of the worst

class Field {
 public:
  Field(std::string name, bool per_token) {
    stats_.name = std::move(name);
    stats_.per_token = per_token;
  }

  void Add(uint64_t sample_id, int64_t position, double value) {
    ++stats_.values;
    if (!std::isfinite(value)) {
      ++(std::isnan(value) ? stats_.nan : stats_.infinite);
      if (stats_.not_finite.size() < kNamed) {
        stats_.not_finite.push_back({.sample_id = sample_id, .position = position, .value = value});
      }
      return;
    }
    const bool first = finite_++ == 0;
    stats_.min = first ? value : std::min(stats_.min, value);
    stats_.max = first ? value : std::max(stats_.max, value);
    sum_ += value;
  }

  template <typename T>
  void AddAll(uint64_t sample_id, const std::vector<T>& values) {
    if (!values.empty()) ++stats_.samples;
    for (size_t i = 0; i < values.size(); ++i) {
      Add(sample_id, static_cast<int64_t>(i), static_cast<double>(values[i]));
    }
  }

  void AddOne(uint64_t sample_id, double value) {
    ++stats_.samples;
    Add(sample_id, -1, value);
  }

  FieldStats Finish() const {
    FieldStats stats = stats_;
    if (finite_ > 0) stats.mean = sum_ / static_cast<double>(finite_);
    return stats;
  }

 private:
  FieldStats stats_;
  int64_t finite_ = 0;
  double sum_ = 0;
};

constexpr const char* kRollout = "rollout";

// The two log-probs of each token that a sample's ratios compare.
struct Compared {
  const char* old_name;
  const std::vector<float>& old;
  const std::vector<float>& trainer;

  bool of_rollout() const { return old_name == kRollout; }
};

Compared ComparedOf(const SavedSample& sample) {
  const bool recomputed = !sample.old_log_probs.empty();
  if (sample.training_log_probs.empty()) {
    return {kRollout, sample.log_probs, sample.old_log_probs};
  }
  return {recomputed ? "recomputed" : kRollout,
          recomputed ? sample.old_log_probs : sample.log_probs, sample.training_log_probs};
}

// Statistics of the ratios of one kind of token.
class RatioTokens {
 public:
  void Add(const SavedSample& sample, const Compared& compared, size_t i) {
    const double old = compared.old[i], trainer = compared.trainer[i];
    if (!std::isfinite(old) || !std::isfinite(trainer)) return;
    const double ratio = std::exp(trainer - old);
    if (stats_.tokens == 0) stats_.min = stats_.max = ratio;
    stats_.min = std::min(stats_.min, ratio);
    stats_.max = std::max(stats_.max, ratio);
    stats_.exactly_one += trainer == old ? 1 : 0;
    sum_ += ratio;
    const double distance = std::fabs(trainer - old);
    if (stats_.tokens++ == 0 || distance > worst_) {
      Keep(sample, i, ratio, distance);
      stats_.old = compared.old_name;
      stats_.old_log_prob = old;
      stats_.trainer = trainer;
    }
  }

  std::optional<RatioStats> Finish() const {
    if (stats_.tokens == 0) return std::nullopt;
    RatioStats stats = stats_;
    stats.mean = sum_ / static_cast<double>(stats.tokens);
    return stats;
  }

 private:
  void Keep(const SavedSample& sample, size_t i, double ratio, double distance) {
    worst_ = distance;
    const auto position = static_cast<int64_t>(i);
    const int64_t at = sample.prompt_tokens + position;
    stats_.worst = {.sample_id = sample.sample_id, .position = position, .value = ratio};
    stats_.group = sample.group;
    stats_.sequence_position = at;
    stats_.token = sample.tokens[static_cast<size_t>(at)];
    stats_.masked = !sample.mask.empty() && sample.mask[i] == 0;
    stats_.weight_version = sample.versions[i];
    const auto begin = sample.tokens.begin();
    const auto length = static_cast<int64_t>(sample.tokens.size());
    stats_.before.assign(begin + std::max<int64_t>(0, at - kContext), begin + at);
    stats_.after.assign(begin + at + 1, begin + std::min(length, at + 1 + kContext));
  }

  RatioStats stats_;
  double sum_ = 0;
  double worst_ = 0;
};

class Ratios {
 public:
  // `training`: the batch has log-probs of a training pass, and only samples with them count.
  // `version`: of the weights at the beginning of the step.
  Ratios(bool training, int64_t version) : training_(training), version_(version) {}

  void Add(const SavedSample& sample) {
    if (training_ && sample.training_log_probs.empty()) return;
    const Compared compared = ComparedOf(sample);
    const size_t both = std::min(compared.old.size(), compared.trainer.size());
    for (size_t i = 0; i < both; ++i) {
      // Recomputed log-probs belong to the step's weights, whichever version sampled the token.
      const bool stale = compared.of_rollout() && sample.versions[i] < version_;
      (stale ? stale_ : current_).Add(sample, compared, i);
    }
  }

  std::optional<RatioStats> current() const { return current_.Finish(); }
  std::optional<RatioStats> stale() const { return stale_.Finish(); }

 private:
  const bool training_;
  const int64_t version_;
  RatioTokens current_, stale_;
};

class Versions {
 public:
  void Add(const SavedSample& sample) {
    for (const int64_t version : sample.versions) ++tokens_[version];
    const auto [low, high] = std::minmax_element(sample.versions.begin(), sample.versions.end());
    mixed_ += low != high && *low != *high ? 1 : 0;
  }
  const std::map<int64_t, int64_t>& tokens() const { return tokens_; }
  int64_t mixed() const { return mixed_; }

 private:
  std::map<int64_t, int64_t> tokens_;
  int64_t mixed_ = 0;
};

class Groups {
 public:
  void Add(const SavedSample& sample) {
    GroupStats& group = groups_[sample.group];
    const bool first = group.samples++ == 0;
    group.group = sample.group;
    group.response_tokens += sample.response_tokens();
    group.reward_min = first ? sample.reward : std::min(group.reward_min, sample.reward);
    group.reward_max = first ? sample.reward : std::max(group.reward_max, sample.reward);
    group.reward_mean += sample.reward;  // a sum until Finish divides it
  }

  std::vector<GroupStats> Finish() const {
    std::vector<GroupStats> groups;
    for (const auto& [number, group] : groups_) {
      groups.push_back(group);
      groups.back().reward_mean /= static_cast<double>(group.samples);
    }
    return groups;
  }

 private:
  std::map<int64_t, GroupStats> groups_;
};

bool HasTrainingPass(const BatchReader& batch) {
  for (size_t i = 0; i < batch.size(); ++i) {
    if (!batch.Read(i).training_log_probs.empty()) return true;
  }
  return false;
}

}  // namespace

BatchStats SummarizeBatch(const BatchReader& batch) {
  BatchStats stats;
  Field prompts("prompt_tokens", false), responses("response_tokens", false);
  Field scores("score", false), rewards("reward", false), tokens("tokens", true);
  Field versions("versions", true);
  std::vector<Field> arrays;
  for (const SavedArray& array : kSavedArrays) arrays.emplace_back(array.name, true);
  Ratios ratios(HasTrainingPass(batch), batch.info().sampling_version);
  Versions by_version;
  Groups groups;
  for (size_t i = 0; i < batch.size(); ++i) {
    const SavedSample sample = batch.Read(i);
    const uint64_t id = sample.sample_id;
    const int64_t length = sample.response_tokens();
    ++stats.samples;
    stats.prompt_tokens += sample.prompt_tokens;
    stats.response_tokens += length;
    stats.trained_tokens += sample.trained_tokens;
    stats.off_support += sample.off_support ? 1 : 0;
    ++stats.finish_reasons[FinishReasonName(sample.finish_reason)];
    prompts.AddOne(id, static_cast<double>(sample.prompt_tokens));
    responses.AddOne(id, static_cast<double>(length));
    scores.AddOne(id, sample.score);
    rewards.AddOne(id, sample.reward);
    tokens.AddAll(id, sample.tokens);
    versions.AddAll(id, sample.versions);
    for (size_t a = 0; a < arrays.size(); ++a) {
      arrays[a].AddAll(id, sample.*kSavedArrays[a].values);
    }
    ratios.Add(sample);
    by_version.Add(sample);
    groups.Add(sample);
  }
  for (const Field* field : {&prompts, &responses, &scores, &rewards, &tokens, &versions}) {
    stats.fields.push_back(field->Finish());
  }
  for (const Field& field : arrays) {
    FieldStats finished = field.Finish();
    if (finished.samples > 0) stats.fields.push_back(std::move(finished));
  }
  stats.groups = groups.Finish();
  stats.ratio = ratios.current();
  stats.stale_ratio = ratios.stale();
  stats.version_tokens = by_version.tokens();
  stats.mixed_samples = by_version.mixed();
  return stats;
}

}  // namespace tandem
