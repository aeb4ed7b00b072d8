#include "controller/partial_rollout/round_replay.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "common/base/check.h"
#include "controller/partial_rollout/slot_schedule.h"

namespace tandem {
namespace {

int64_t Longest(const ReplayGroup& group) {
  return group.lengths.empty() ? 0 : *std::max_element(group.lengths.begin(), group.lengths.end());
}

// A group that a round issues. Each of its unfinished samples has `done` tokens: all went through
// the same rounds.
struct Issued {
  const ReplayGroup* group = nullptr;
  int64_t done = 0;
  int64_t versions = 0;  // that its unfinished samples have tokens of, the round's included
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
  int64_t waiting_ = 0;  // whole groups that are not trained yet
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

}  // namespace tandem
