#include "controller/reward/composite_reward.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/progress.h"
#include "common/base/status.h"
#include "controller/reward/check_reward.h"
#include "controller/reward/overlong.h"
#include "controller/reward/reward_client.h"
#include "controller/reward/scorer_registry.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

// Scores each item with one named scorer, or with the scorer of its data_source ("auto").
class LocalReward final : public RewardFunction {
 public:
  static absl::StatusOr<std::unique_ptr<RewardFunction>> Create(const std::string& function,
                                                                const std::string& args) {
    auto reward = std::make_unique<LocalReward>();
    if (function != "auto") {
      reward->fixed_name_ = function;
      TANDEM_ASSIGN_OR_RETURN(reward->fixed_, MakeScorer(function, args));
    } else {
      // All scorers are built here, so that Score changes nothing and is thread-safe.
      for (const std::string& name : FunctionNames()) {
        absl::StatusOr<Scorer> scorer = MakeScorer(name, args);
        if (scorer.ok()) reward->by_name_[name] = *std::move(scorer);
      }
    }
    return reward;
  }

  absl::StatusOr<std::vector<RewardScore>> Score(const std::vector<RewardItem>& items) override {
    std::vector<RewardScore> scores;
    for (const RewardItem& item : items) {
      NoteProgress();
      TANDEM_ASSIGN_OR_RETURN(const Scorer* scorer, FindScorer(item.data_source));
      scores.push_back((*scorer)(item));
    }
    return scores;
  }

  absl::Status CheckRow(const std::string& data_source,
                        const std::string& ground_truth) const override {
    if (fixed_) return CheckTruth(fixed_name_, ground_truth);
    TANDEM_RETURN_IF_ERROR(FindScorer(data_source).status());
    return CheckTruth(*FunctionForDataSource(data_source), ground_truth);
  }

 private:
  absl::StatusOr<const Scorer*> FindScorer(const std::string& data_source) const {
    if (fixed_) return &fixed_;
    TANDEM_ASSIGN_OR_RETURN(const std::string name, FunctionForDataSource(data_source));
    const auto found = by_name_.find(name);
    if (found != by_name_.end()) return &found->second;
    return InvalidArgument("reward {} of data_source \"{}\" does not take reward.args", name,
                           data_source);
  }

  std::string fixed_name_;
  Scorer fixed_;
  std::map<std::string, Scorer> by_name_;
};

struct Term {
  std::string name;
  double weight;
  Scorer scorer;
};

struct Overlong {
  OverlongPenalty penalty;
  bool log;
};

class CompositeReward final : public RewardFunction {
 public:
  CompositeReward(v1::Reward config,
                  std::unique_ptr<RewardFunction> function,
                  std::vector<Term> terms,
                  std::optional<Overlong> overlong)
      : config_(std::move(config)),
        function_(std::move(function)),
        terms_(std::move(terms)),
        overlong_(overlong) {}

  absl::StatusOr<std::vector<RewardScore>> Score(const std::vector<RewardItem>& items) override {
    TANDEM_ASSIGN_OR_RETURN(std::vector<RewardScore> scores, function_->Score(items));
    for (size_t i = 0; i < std::min(items.size(), scores.size()); ++i) {
      NoteProgress();
      Complete(items[i], scores[i]);
    }
    return scores;
  }

  absl::Status CheckRow(const std::string& data_source,
                        const std::string& ground_truth) const override {
    return function_->CheckRow(data_source, ground_truth);
  }

  void EndWhen(std::function<bool()> interrupted) override {
    function_->EndWhen(std::move(interrupted));
  }

  std::optional<std::set<std::string>> Keys(const std::string& data_source) const override {
    return RewardKeys(config_, data_source);
  }

 private:
  void Complete(const RewardItem& item, RewardScore& score) const {
    score.extras.emplace("score", score.score);
    // Terms and penalties change the score; acc keeps whether the answer is correct.
    if (!terms_.empty() || overlong_) score.extras.emplace("acc", score.score);
    for (const Term& term : terms_) {
      const double value = term.scorer(item).score;
      score.extras[term.name] = value;
      score.score += term.weight * value;
    }
    if (!overlong_) return;
    const double penalty = overlong_->penalty(item.response_tokens);
    score.score += penalty;
    if (!overlong_->log) return;
    score.extras["overlong_reward"] = penalty;
    score.extras["overlong"] = penalty < 0 ? 1.0 : 0.0;
  }

  const v1::Reward config_;
  std::unique_ptr<RewardFunction> function_;
  std::vector<Term> terms_;
  std::optional<Overlong> overlong_;
};

absl::StatusOr<std::optional<Overlong>> MakeOverlong(const v1::Reward& config) {
  const v1::OverlongBuffer& buffer = config.overlong_buffer();
  if (!buffer.enable()) return std::nullopt;
  TANDEM_ASSIGN_OR_RETURN(
      const OverlongPenalty penalty,
      OverlongPenalty::Create(config.max_resp_len(), buffer.len(), buffer.penalty_factor()));
  return Overlong{penalty, buffer.log()};
}

absl::StatusOr<std::unique_ptr<RewardFunction>> MakeFunction(const v1::Reward& config,
                                                             const RpcSecurity& security) {
  if (config.function() != "remote") return LocalReward::Create(config.function(), config.args());
  RewardClientOptions options;
  options.address = config.service_address();
  options.timeout = absl::Seconds(config.timeout_seconds());
  options.retries = config.retries();
  options.security = security;
  return MakeRemoteReward(options);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RewardFunction>> MakeReward(const v1::Reward& config,
                                                           const RpcSecurity& security) {
  const ConfigOrigins unknown_origins;
  ConfigProblems problems(unknown_origins);
  CheckRewardSection(config, problems);
  TANDEM_RETURN_IF_ERROR(problems.status());
  TANDEM_ASSIGN_OR_RETURN(auto function, MakeFunction(config, security));
  std::vector<Term> terms;
  for (const v1::RewardTerm& term : config.terms()) {
    TANDEM_ASSIGN_OR_RETURN(Scorer scorer, MakeScorer(term.name(), term.args()));
    terms.push_back({term.name(), term.weight(), std::move(scorer)});
  }
  TANDEM_ASSIGN_OR_RETURN(const std::optional<Overlong> overlong, MakeOverlong(config));
  return std::make_unique<CompositeReward>(config, std::move(function), std::move(terms), overlong);
}

}  // namespace tandem
