#include "controller/partial_rollout/tail_model.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>

#include "common/base/check.h"
#include "controller/store/run_store.h"

namespace tandem {

void TailRecorder::Begin() {
  begun_ = clock_.Now();
  arrivals_.clear();
}

void TailRecorder::Arrived(const Sample& sample) {
  arrivals_.push_back({.index = static_cast<int64_t>(sample.sample_id & 0xfffu),
                       .sample = {.group = sample.group,
                                  .prompt_tokens = sample.prompt_tokens,
                                  .response_tokens = sample.response_tokens(),
                                  .arrived = absl::ToDoubleSeconds(clock_.Now() - begun_)}});
}

void TailRecorder::End() {
  if (arrivals_.empty()) return;
  // Groups are issued in their order, and samples of a group in theirs.
  std::sort(arrivals_.begin(), arrivals_.end(), [](const Arrival& a, const Arrival& b) {
    return std::tie(a.sample.group, a.index) < std::tie(b.sample.group, b.index);
  });
  TailPass pass{.seconds = absl::ToDoubleSeconds(clock_.Now() - begun_)};
  for (const Arrival& arrival : arrivals_) pass.samples.push_back(arrival.sample);
  passes_.push_back(std::move(pass));
  arrivals_.clear();
}

double TailRecorder::seconds() const {
  double seconds = 0;
  for (const TailPass& pass : passes_) seconds += pass.seconds;
  return seconds;
}

void TailRecorder::Report(const TailOptions& options,
                          std::map<std::string, double>& metrics) const {
  if (passes_.empty()) return;
  EmptySlots all;
  std::map<std::string, double> saved;
  for (TailPass pass : passes_) {
    pass.slots = options.slots;
    const EmptySlots empty = EmptyOfTail(pass);
    all.slot_seconds += empty.slot_seconds;
    all.capacity += empty.capacity;
    const EngineCost cost = FitEngineCost(pass);
    for (const PredictedCap& cap : options.caps) {
      saved[cap.name] += PredictCap(pass, cost, cap.tokens, options.max_versions).saved();
    }
  }
  metrics[kTailEmptySlotSeconds] = all.slot_seconds;
  metrics[kTailShare] = all.share();
  for (const auto& [name, seconds] : saved) metrics[kPredictedSaving + name] = seconds;
}

SlotReplay ReplaySlots(const std::vector<SlotJob>& jobs, int64_t slots) {
  TANDEM_CHECK(slots >= 1, "an engine has slots");
  using End = std::pair<int64_t, size_t>;  // engine step, job
  std::priority_queue<End, std::vector<End>, std::greater<>> running;
  SlotReplay replay;
  replay.ends.resize(jobs.size());
  EngineWork now;
  for (size_t next = 0; next < jobs.size() || !running.empty();) {
    for (; next < jobs.size() && std::ssize(running) < slots; ++next) {
      now.tokens += jobs[next].prefill;
      running.emplace(now.steps + jobs[next].tokens, next);
    }
    const int64_t end = running.top().first;
    now.tokens += (end - now.steps) * std::ssize(running);
    now.steps = end;
    for (; !running.empty() && running.top().first == end; running.pop()) {
      replay.ends[running.top().second] = now;
    }
  }
  replay.all = now;
  return replay;
}

namespace {

int64_t Longest(const ReplayGroup& group) {
  return group.lengths.empty() ? 0 : *std::max_element(group.lengths.begin(), group.lengths.end());
}

// A group that a round issues. Each of its unfinished samples has `done` tokens, as all went
// through the same rounds.
struct Issued {
  const ReplayGroup* group = nullptr;
  int64_t done = 0;
  int64_t versions = 0;  // whose tokens its unfinished samples have, including this round's
  int64_t last_version = -1;
};

class Replay {
 public:
  Replay(const std::vector<ReplayGroup>& groups, const RoundRules& rules)
      : groups_(groups), rules_(rules) {}

  void Round(RoundTotals* totals) {
    std::vector<SlotJob> jobs;
    std::deque<Issued> issued = std::move(carried_);
    carried_.clear();
    while (issued.size() < groups_.size()) {
      issued.push_back({.group = &groups_[next_++ % groups_.size()]});
    }
    for (Issued& one : issued) {
      one.versions += one.last_version == version_ ? 0 : 1;
      one.last_version = version_;
      AddJobs(one, &jobs, totals);
    }
    const EngineWork work = ReplaySlots(jobs, rules_.slots).all;
    ++totals->rounds;
    totals->steps += work.steps;
    totals->tokens += work.tokens;
    for (Issued& one : issued) {
      one.done += Budget(one);
      if (Longest(*one.group) > one.done) {
        carried_.push_back(one);
      } else {
        ++totals->whole_groups;
        ++waiting_;
      }
    }
    for (; waiting_ >= std::ssize(groups_); waiting_ -= std::ssize(groups_)) ++version_;
  }

 private:
  // New tokens of its samples in this round.
  int64_t Budget(const Issued& one) const {
    const int64_t left = Longest(*one.group) - one.done;
    return one.versions >= rules_.max_versions ? left : std::min(rules_.cap, left);
  }

  void AddJobs(const Issued& one, std::vector<SlotJob>* jobs, RoundTotals* totals) const {
    int64_t prompt = one.group->prompt_tokens;  // once for the group
    for (const int64_t length : one.group->lengths) {
      if (one.done > 0 && length <= one.done) continue;
      const int64_t prefill = std::exchange(prompt, 0) + one.done;
      jobs->push_back({.prefill = prefill, .tokens = std::min(Budget(one), length - one.done)});
      if (one.done > 0) totals->prefilled_again += prefill;
    }
  }

  const std::vector<ReplayGroup>& groups_;
  const RoundRules& rules_;
  std::deque<Issued> carried_;  // oldest first
  size_t next_ = 0;
  int64_t waiting_ = 0;  // complete groups that are not trained yet
  int64_t version_ = 0;
};

}  // namespace

RoundTotals ReplayRounds(const std::vector<ReplayGroup>& groups, const RoundRules& rules) {
  TANDEM_CHECK(rules.cap >= 1, "a round makes tokens");
  if (groups.empty()) return {};
  int64_t longest = 0;
  for (const ReplayGroup& group : groups) longest = std::max(longest, Longest(group));
  Replay replay(groups, rules);
  RoundTotals warm_up, totals;
  const int64_t first = std::min((longest + rules.cap - 1) / rules.cap, kMostRounds / 2);
  for (int64_t i = 0; i < first; ++i) replay.Round(&warm_up);
  while (totals.rounds < kCountedRounds ||
         (totals.whole_groups == 0 && totals.rounds < kMostRounds)) {
    replay.Round(&totals);
  }
  return totals;
}

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

std::vector<ReplayGroup> ToReplayGroups(const TailPass& pass) {
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

Sums AddUp(const TailPass& pass) {
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
  const Sums sums = AddUp(pass);
  if (!(sums.tokens_tokens > 0)) return {};
  const double by_tokens = std::max(0.0, sums.tokens_time / sums.tokens_tokens);
  const double product = sums.steps_steps * sums.tokens_tokens;
  const double determinant = product - sums.steps_tokens * sums.steps_tokens;
  constexpr double kSingular = 1e-9;  // of the product: below it the arrivals are on one line
  if (!(determinant > kSingular * product)) return {.token = by_tokens};
  const EngineCost cost{
      .step = (sums.steps_time * sums.tokens_tokens - sums.tokens_time * sums.steps_tokens) /
              determinant,
      .token = (sums.tokens_time * sums.steps_steps - sums.steps_time * sums.steps_tokens) /
               determinant};
  if (cost.step >= 0 && cost.token >= 0) return cost;
  // How much each factor alone reduces the sum of squares.
  const double of_steps = sums.steps_time * sums.steps_time / sums.steps_steps;
  const double of_tokens = sums.tokens_time * sums.tokens_time / sums.tokens_tokens;
  if (of_steps > of_tokens) return {.step = std::max(0.0, sums.steps_time / sums.steps_steps)};
  return {.token = by_tokens};
}

CapPrediction PredictCap(const TailPass& pass,
                         const EngineCost& cost,
                         int64_t cap,
                         int64_t max_versions) {
  const std::vector<ReplayGroup> groups = ToReplayGroups(pass);
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
