#include "controller/partial_rollout/partial_options.h"

#include <algorithm>

#include "common/config/config.h"
#include "common/config/rollout_rules.h"
#include "tandem/v1/config.pb.h"

namespace tandem {

int64_t PartialOptions::FreshPrompts(int64_t unfinished, int64_t complete) const {
  int64_t wanted = groups_per_round - unfinished;
  if (cuts_nothing()) wanted = std::min(wanted, train_batch_size - unfinished - complete);
  return std::max<int64_t>(0, wanted);
}

// PartialOptions from the configuration.

namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// See MakePartialOptions. At most 2^62.
int64_t DefaultMaxRounds(const PartialOptions& options) {
  constexpr int64_t kWithoutCap = 1000;
  if (options.cap <= 0) return kWithoutCap;
  const int64_t needed = CeilDiv(options.response_length, options.cap) *
                         CeilDiv(options.train_batch_size, options.groups_per_round);
  const bool may_end_early = options.round_seconds > 0 || options.overlap;
  return may_end_early ? std::max(kWithoutCap, needed) : needed;
}

}  // namespace

PartialOptions MakePartialOptions(const v1::Config& config) {
  const v1::Partial& keys = config.rollout().partial();
  const bool one_step_off = config.trainer().off_policy_steps() > 0;
  PartialOptions options{.enabled = PartialEnabled(config) || one_step_off,
                         .cap = PartialCap(config),
                         .until_groups = keys.until_groups(),
                         .round_seconds = keys.round_seconds(),
                         .groups_per_round = keys.groups_per_round(),
                         .max_versions = keys.max_versions(),
                         .max_rounds_without_batch = keys.max_rounds_without_batch(),
                         .overlap = keys.overlap(),
                         .max_staleness = keys.max_staleness(),
                         .one_step_off = one_step_off,
                         .train_batch_size = config.data().train_batch_size(),
                         .response_length = config.data().max_response_length()};
  const int64_t mini_batch = config.actor().ppo_mini_batch_size() > 0
                                 ? config.actor().ppo_mini_batch_size()
                                 : options.train_batch_size;
  options.updates_per_step =
      (options.train_batch_size + mini_batch - 1) / mini_batch * config.actor().ppo_epochs();
  if (options.groups_per_round <= 0) options.groups_per_round = options.train_batch_size;
  if (options.max_rounds_without_batch <= 0) {
    options.max_rounds_without_batch = DefaultMaxRounds(options);
  }
  return options;
}

}  // namespace tandem
