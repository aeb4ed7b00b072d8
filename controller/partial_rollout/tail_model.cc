#include "controller/partial_rollout/tail_model.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "controller/partial_rollout/round_replay.h"
#include "controller/partial_rollout/slot_schedule.h"

namespace tandem {
namespace {

// The first sample of a group prefills its prompt for all.
SlotReplay ReplayPass(const TailPass& pass) {
  std::vector<SlotJob> jobs;
  jobs.reserve(pass.samples.size());
  for (size_t i = 0; i < pass.samples.size(); ++i) {
    const TailSample& sample = pass.samples[i];
    const bool first = i == 0 || pass.samples[i - 1].group != sample.group;
    jobs.push_back({.prefill = first ? sample.prompt_tokens : 0, .tokens = sample.response_tokens});
  }
  return ReplaySlots(jobs, pass.slots);
}

std::vector<ReplayGroup> GroupsOf(const TailPass& pass) {
  std::vector<ReplayGroup> groups;
  for (size_t i = 0; i < pass.samples.size(); ++i) {
    const TailSample& sample = pass.samples[i];
    if (i == 0 || pass.samples[i - 1].group != sample.group) {
      groups.push_back({.prompt_tokens = sample.prompt_tokens});
    }
    groups.back().lengths.push_back(sample.response_tokens);
  }
  return groups;
}

double Seconds(const EngineCost& cost, double steps, double tokens) {
  return cost.step * steps + cost.token * tokens;
}

// The sums of the normal equations.
struct Sums {
  double steps_steps = 0, steps_tokens = 0, tokens_tokens = 0, steps_time = 0, tokens_time = 0;
};

Sums SumsOf(const TailPass& pass) {
  const SlotReplay replay = ReplayPass(pass);
  Sums sums;
  for (size_t i = 0; i < pass.samples.size(); ++i) {
    const auto steps = static_cast<double>(replay.ends[i].steps);
    const auto tokens = static_cast<double>(replay.ends[i].tokens);
    sums.steps_steps += steps * steps;
    sums.steps_tokens += steps * tokens;
    sums.tokens_tokens += tokens * tokens;
    sums.steps_time += steps * pass.samples[i].arrived;
    sums.tokens_time += tokens * pass.samples[i].arrived;
  }
  return sums;
}

}  // namespace

EmptySlots EmptyOfTail(const TailPass& pass) {
  std::vector<double> arrivals;
  for (const TailSample& sample : pass.samples) arrivals.push_back(sample.arrived);
  std::sort(arrivals.begin(), arrivals.end());
  const int64_t slots = std::min(pass.slots, std::ssize(arrivals));
  EmptySlots empty{.capacity = static_cast<double>(slots) * pass.seconds};
  for (auto i = static_cast<size_t>(std::ssize(arrivals) - slots); i < arrivals.size(); ++i) {
    empty.slot_seconds += std::max(0.0, pass.seconds - arrivals[i]);
  }
  return empty;
}

EngineCost FitEngineCost(const TailPass& pass) {
  const Sums sums = SumsOf(pass);
  if (!(sums.tokens_tokens > 0)) return {};
  const double by_tokens = std::max(0.0, sums.tokens_time / sums.tokens_tokens);
  const double product = sums.steps_steps * sums.tokens_tokens;
  const double determinant = product - sums.steps_tokens * sums.steps_tokens;
  constexpr double kSingular = 1e-9;  // of the product: the arrivals are on one line
  if (!(determinant > kSingular * product)) return {.token = by_tokens};
  const EngineCost cost{
      .step = (sums.steps_time * sums.tokens_tokens - sums.tokens_time * sums.steps_tokens) /
              determinant,
      .token = (sums.tokens_time * sums.steps_steps - sums.steps_time * sums.steps_tokens) /
               determinant};
  if (cost.step >= 0 && cost.token >= 0) return cost;
  // What a single factor takes off the sum of squares.
  const double of_steps = sums.steps_time * sums.steps_time / sums.steps_steps;
  const double of_tokens = sums.tokens_time * sums.tokens_time / sums.tokens_tokens;
  if (of_steps > of_tokens) return {.step = std::max(0.0, sums.steps_time / sums.steps_steps)};
  return {.token = by_tokens};
}

CapPrediction PredictCap(const TailPass& pass,
                         const EngineCost& cost,
                         int64_t cap,
                         int64_t max_versions) {
  const std::vector<ReplayGroup> groups = GroupsOf(pass);
  const RoundTotals totals =
      ReplayRounds(groups, {.cap = cap, .max_versions = max_versions, .slots = pass.slots});
  if (totals.whole_groups == 0) return {};
  const EngineWork whole = ReplayPass(pass).all;
  const double batches =
      static_cast<double>(totals.whole_groups) / static_cast<double>(groups.size());
  return {.whole_seconds =
              Seconds(cost, static_cast<double>(whole.steps), static_cast<double>(whole.tokens)),
          .capped_seconds = Seconds(cost, static_cast<double>(totals.steps) / batches,
                                    static_cast<double>(totals.tokens) / batches),
          .rounds = static_cast<double>(totals.rounds) / batches,
          .prefilled_again = static_cast<double>(totals.prefilled_again) / batches};
}

int64_t NearestRank(std::vector<int64_t> values, double share) {
  TANDEM_CHECK(share > 0 && share <= 1, "a share of the values");
  if (values.empty()) return 0;
  const auto rank = static_cast<int64_t>(std::ceil(share * static_cast<double>(values.size())));
  const auto at = values.begin() + std::clamp<int64_t>(rank - 1, 0, std::ssize(values) - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace tandem
