#include "common/config/partial_rules.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

class PartialRules {
 public:
  explicit PartialRules(const v1::Config& config)
      : config_(config),
        keys_(config.rollout().partial()),
        batch_(config.data().train_batch_size()) {}

  std::vector<KeyProblem> Problems() {
    CheckCap();
    if (keys_.until_groups() > 0) CheckUntilGroups();
    if (PartialEnabled(config_)) CheckTogether();
    return std::move(problems_);
  }

 private:
  void Require(bool ok, std::vector<std::string> keys, std::string text) {
    if (!ok) problems_.push_back({std::move(keys), std::move(text)});
  }

  void CheckCap() {
    const int64_t splits = config_.algorithm().partial_rollout_max_split();
    Require(keys_.max_tokens_per_round() == 0 || splits == 0,
            {"rollout.partial.max_tokens_per_round", "algorithm.partial_rollout_max_split"},
            fmt::format("rollout.partial.max_tokens_per_round={} and "
                        "algorithm.partial_rollout_max_split={} both say how many tokens a sample "
                        "gets in a round; leave one of them out",
                        keys_.max_tokens_per_round(), splits));
  }

  void CheckUntilGroups() {
    const int64_t until = keys_.until_groups();
    const bool own = keys_.groups_per_round() > 0;
    const int64_t issued = own ? keys_.groups_per_round() : batch_;
    const char* what = own ? "rollout.partial.groups_per_round" : "data.train_batch_size";
    Require(until <= issued, {"rollout.partial.until_groups", "rollout.partial.groups_per_round"},
            fmt::format("rollout.partial.until_groups={} waits for more groups than a round has, "
                        "{}={}; raise rollout.partial.groups_per_round, or lower until_groups",
                        until, what, issued));
    // Whole groups that wait count, so that every round after the first would end as it begins.
    Require(until >= batch_, {"rollout.partial.until_groups", "data.train_batch_size"},
            fmt::format("rollout.partial.until_groups={} ends rounds before they have the groups "
                        "of one batch, data.train_batch_size={}: no step could train; raise "
                        "until_groups to {} or more, and rollout.partial.groups_per_round with it",
                        until, batch_, batch_));
  }

  void CheckTogether() {
    Require(config_.algorithm().adv_estimator() != "remax",
            {"algorithm.adv_estimator", "rollout.partial.max_tokens_per_round",
             "rollout.partial.until_groups", "rollout.partial.round_seconds",
             "rollout.partial.overlap", "algorithm.partial_rollout_max_split"},
            "algorithm.adv_estimator=remax compares a sample with a greedy response of the same "
            "weights, and with rollout.partial a sample has tokens of several; choose another "
            "estimator, such as rloo, or leave rollout.partial out");
    Require(!keys_.overlap() || config_.rollout().free_cache_engine() == "false",
            {"rollout.partial.overlap", "rollout.free_cache_engine"},
            fmt::format("rollout.partial.overlap=true generates while the trainers train, and "
                        "rollout.free_cache_engine={} {} the KV cache away then, of every rollout, "
                        "as each shares its device with a trainer; set it to false",
                        config_.rollout().free_cache_engine(),
                        config_.rollout().free_cache_engine() == "auto" ? "may take" : "takes"));
  }

  const v1::Config& config_;
  const v1::Partial& keys_;
  const int64_t batch_;
  std::vector<KeyProblem> problems_;
};

}  // namespace

int64_t PartialCap(const v1::Config& config) {
  const int64_t cap = config.rollout().partial().max_tokens_per_round();
  const int64_t splits = config.algorithm().partial_rollout_max_split();
  if (cap > 0 || splits == 0) return cap;
  return (config.data().max_response_length() + splits - 1) / splits;
}

bool PartialEnabled(const v1::Config& config) {
  const v1::Partial& keys = config.rollout().partial();
  return PartialCap(config) > 0 || keys.until_groups() > 0 || keys.round_seconds() > 0 ||
         keys.overlap();
}

std::vector<KeyProblem> PartialProblems(const v1::Config& config) {
  return PartialRules(config).Problems();
}

}  // namespace tandem
