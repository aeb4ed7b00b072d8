#include "rollout_worker/generation/scheduler.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// Runs a scheduler as the engine does and checks every plan. Instead of K and V, a block holds who
// wrote each of its 64 slots: (token, position) of the sequence that computed it.
class Harness {
 public:
  Harness(const SchedulerOptions& options, int64_t blocks)
      : options_(options), scheduler_(options, blocks), slots_(static_cast<size_t>(blocks)) {}

  // `carried`: tokens that its samples come with; empty: none has any.
  SequenceGroup* Add(int64_t prompt_tokens,
                     int64_t samples,
                     int64_t max_tokens,
                     const std::vector<int64_t>& carried = {}) {
    const auto arrival = static_cast<int64_t>(groups_.size());
    std::vector<int32_t> prompt(static_cast<size_t>(prompt_tokens));
    std::iota(prompt.begin(), prompt.end(), static_cast<int32_t>(arrival * 100000));
    std::vector<uint64_t> ids;
    for (int64_t i = 0; i < samples; ++i) ids.push_back(static_cast<uint64_t>(arrival * 1000 + i));
    SamplingParams params;
    params.max_tokens = max_tokens;
    std::vector<Continuation> continued(carried.size());
    for (size_t i = 0; i < carried.size(); ++i) {
      for (int64_t t = 0; t < carried[i]; ++t) {
        continued[i].tokens.push_back(TokenOf(ids[i], prompt_tokens + t));
      }
    }
    groups_.push_back(MakeSequenceGroup(prompt, ids, params, continued));
    groups_.back()->arrival = arrival;
    scheduler_.Add(groups_.back().get());
    return groups_.back().get();
  }

  // One step; returns the plan.
  StepPlan Step() {
    const StepPlan plan = scheduler_.Schedule();
    Check(plan);
    Execute(plan);
    scheduler_.Advance(plan);
    for (const PlannedSpan& span : plan.spans) {
      span.ForEachSampler([this](Sequence* sequence) { Sampled(sequence); });
    }
    return plan;
  }

  // Steps until nothing is left; fails when that takes more than `limit`.
  int64_t Run(int64_t limit = 100000) {
    int64_t steps = 0;
    for (; scheduler_.has_work(); ++steps) {
      REQUIRE(steps < limit);
      Step();
    }
    REQUIRE(scheduler_.blocks().used_blocks() == 0);
    for (const auto& group : groups_) {
      for (const auto& sequence : group->sequences) {
        REQUIRE(sequence->state == SequenceState::kFinished);
        REQUIRE(sequence->length() == group->prompt_tokens + group->params.max_tokens);
      }
    }
    return steps;
  }

  Scheduler& scheduler() { return scheduler_; }
  const std::vector<uint64_t>& finish_order() const { return finish_order_; }

 private:
  using Slot = std::pair<int32_t, int64_t>;  // token, position

  void Check(const StepPlan& plan) {
    int64_t tokens = 0;
    REQUIRE(scheduler_.running() <= options_.max_num_seqs);
    for (const PlannedSpan& span : plan.spans) {
      tokens += span.tokens;
      const Sequence& s = *span.sequence;
      REQUIRE(span.first_position == s.computed);
      REQUIRE(static_cast<int64_t>(s.blocks.size()) * kKvBlockTokens >= s.computed + span.tokens);
      for (int64_t p = s.computed; p < s.computed + span.tokens; ++p) {
        const int32_t block = s.blocks[static_cast<size_t>(p / kKvBlockTokens)];
        REQUIRE(scheduler_.blocks().holders(block) == 1);
      }
    }
    REQUIRE(tokens == plan.tokens);
    REQUIRE((tokens > 0 || !scheduler_.has_work()));
    REQUIRE(tokens <= options_.max_num_batched_tokens);
  }

  void Execute(const StepPlan& plan) {
    for (const BlockCopy& copy : plan.copies) {
      slots_[static_cast<size_t>(copy.to)] = slots_[static_cast<size_t>(copy.from)];
    }
    for (const PlannedSpan& span : plan.spans) {
      const Sequence& s = *span.sequence;
      for (int64_t p = s.computed; p < s.computed + span.tokens; ++p) SlotOf(s, p) = Expected(s, p);
    }
    // What attention would read is what this very sequence's history says.
    for (const PlannedSpan& span : plan.spans) {
      const Sequence& s = *span.sequence;
      for (int64_t p = 0; p < s.computed + span.tokens; ++p) {
        REQUIRE(SlotOf(s, p) == Expected(s, p));
      }
    }
  }

  // A token that tells the samples of a group apart.
  static int32_t TokenOf(uint64_t sample_id, int64_t position) {
    return static_cast<int32_t>(-1 - sample_id * 1000 - static_cast<uint64_t>(position));
  }
  static Slot Expected(const Sequence& s, int64_t position) {
    return {s.tokens[static_cast<size_t>(position)], position};
  }
  Slot& SlotOf(const Sequence& s, int64_t position) {
    auto& block = slots_[static_cast<size_t>(s.blocks[static_cast<size_t>(position / 64)])];
    return block[position % 64];
  }

  void Sampled(Sequence* sequence) {
    sequence->tokens.push_back(TokenOf(sequence->sample_id, sequence->length()));
    const SequenceGroup& group = *sequence->group;
    if (sequence->length() == group.prompt_tokens + group.params.max_tokens) {
      finish_order_.push_back(sequence->sample_id);
      scheduler_.Finish(sequence);
    }
  }

  const SchedulerOptions options_;
  Scheduler scheduler_;
  std::vector<std::map<int64_t, Slot>> slots_;
  std::vector<std::unique_ptr<SequenceGroup>> groups_;
  std::vector<uint64_t> finish_order_;
};

}  // namespace

TEST_CASE("A prompt is prefilled exactly once for all samples of its group") {
  for (const int64_t prompt : {1, 63, 64, 65, 200}) {
    Harness harness({64, 48, true}, 100);
    harness.Add(prompt, 8, 20);
    harness.Run();
    REQUIRE(harness.scheduler().prefill_tokens() == prompt);
    REQUIRE(harness.scheduler().prefix_hit_tokens() == 7 * prompt);
    REQUIRE(harness.scheduler().preemptions() == 0);
  }
}

TEST_CASE("Without sharing every sample prefills its own prompt") {
  Harness harness({64, 48, false}, 100);
  harness.Add(100, 4, 5);
  harness.Run();
  REQUIRE(harness.scheduler().prefill_tokens() == 400);
  REQUIRE(harness.scheduler().prefix_hit_tokens() == 0);
}

TEST_CASE("A long prefill is cut in chunks and decoding goes on beside it") {
  Harness harness({8, 16, true}, 100);
  SequenceGroup* first = harness.Add(4, 1, 50);
  harness.Step();
  harness.Add(100, 1, 1);
  for (int i = 0; i < 5; ++i) {
    const int64_t before = first->sequences[0]->length();
    const StepPlan plan = harness.Step();
    REQUIRE(first->sequences[0]->length() == before + 1);
    REQUIRE(plan.tokens == 16);
  }
  harness.Run();
}

TEST_CASE("Decoding is not stalled by an older long prefill") {
  Harness harness({8, 16, true}, 100);
  harness.Add(10, 1, 40);
  harness.Add(200, 1, 4);
  SequenceGroup* third = harness.Add(3, 1, 30);
  // The third cannot start before the second's prompt leaves room, but never waits once it runs.
  while (third->sequences[0]->length() == 3) harness.Step();
  for (int i = 0; i < 10; ++i) {
    const int64_t before = third->sequences[0]->length();
    harness.Step();
    REQUIRE(third->sequences[0]->length() == before + 1);
  }
  harness.Run();
}

TEST_CASE("Equal requests finish in the order of their arrival") {
  Harness harness({3, 64, true}, 100);
  for (int i = 0; i < 10; ++i) harness.Add(30, 1, 10);
  harness.Run();
  const auto& order = harness.finish_order();
  REQUIRE(std::is_sorted(order.begin(), order.end()));
}

TEST_CASE("The samples of a group run in turns when fewer may run at once") {
  Harness harness({3, 64, true}, 100);
  harness.Add(70, 8, 10);
  harness.Run();
  REQUIRE(harness.scheduler().prefill_tokens() == 70);
}

TEST_CASE("A pool of one longest sequence serves any load, by preempting the newest") {
  const int64_t blocks = 4;  // 256 tokens
  Harness harness({16, 64, true}, blocks);
  for (int i = 0; i < 4; ++i) harness.Add(100, 4, 156);
  harness.Run();
  REQUIRE(harness.scheduler().preemptions() > 0);
}

TEST_CASE("A preempted sample takes the prompt's blocks over from another sample of its group") {
  // The prompt fills two blocks and each sample one more, until the first one needs a fourth.
  Harness harness({8, 200, true}, 4);
  SequenceGroup* group = harness.Add(128, 2, 100);
  while (harness.scheduler().preemptions() == 0) harness.Step();
  const Sequence* preempted = group->sequences[1].get();
  REQUIRE(preempted->state == SequenceState::kWaiting);
  const int64_t hits = harness.scheduler().prefix_hit_tokens();
  std::vector<PlannedSpan> spans;
  while (spans.empty()) {
    for (const PlannedSpan& span : harness.Step().spans) {
      if (span.sequence == preempted) spans.push_back(span);
    }
  }
  REQUIRE(spans[0].first_position == 128);
  REQUIRE(harness.scheduler().prefix_hit_tokens() == hits + 128);
  harness.Run();
}

TEST_CASE(
    "A sample takes over the prompt's blocks as soon as another one has computed them again") {
  // An older sequence needs a second block when all four are in use, so both samples lose theirs.
  Harness harness({8, 64, true}, 4);
  SequenceGroup* older = harness.Add(1, 1, 70);
  SequenceGroup* group = harness.Add(128, 2, 100);
  while (older->sequences[0]->state != SequenceState::kFinished) harness.Step();
  const Sequence* first = group->sequences[0].get();
  const Sequence* second = group->sequences[1].get();
  REQUIRE(first->blocks.empty());
  REQUIRE(second->blocks.empty());
  // Two steps' budgets compute exactly the prompt, which is two blocks.
  harness.Step();
  harness.Step();
  REQUIRE(first->computed == 128);
  REQUIRE(second->computed == 0);
  const StepPlan plan = harness.Step();
  REQUIRE(plan.spans.size() == 2);
  REQUIRE(plan.spans[1].sequence == second);
  REQUIRE(plan.spans[1].first_position == 128);
  REQUIRE(plan.spans[1].tokens == 1);
  harness.Run();
}

TEST_CASE("A waiting sample keeps the prompt's blocks while another one runs") {
  // The prompt fills one block and a part of a second one, of which the first sample has a copy.
  Harness harness({8, 200, true}, 3);
  SequenceGroup* group = harness.Add(100, 3, 20);
  harness.Step();
  while (group->sequences[0]->state != SequenceState::kFinished) {
    harness.Step();
    REQUIRE(group->sequences[2]->computed == 100);
  }
  harness.Run();
  REQUIRE(harness.scheduler().preemptions() == 0);
}

TEST_CASE("With none running, the oldest sample takes blocks from waiting ones in the same step") {
  // The second sample comes with so many tokens that it needs the whole pool.
  Harness harness({8, 200, true}, 3);
  SequenceGroup* group = harness.Add(100, 3, 92, {0, 80, 0});
  while (!group->forked) harness.Step();
  harness.scheduler().Finish(group->sequences[0].get());
  harness.Step();
  REQUIRE(group->sequences[1]->state == SequenceState::kRunning);
  REQUIRE(group->sequences[2]->computed < 100);
  while (harness.scheduler().has_work()) harness.Step();
  REQUIRE(harness.scheduler().blocks().used_blocks() == 0);
}

TEST_CASE("Samples that wait for their group's prompt count as waiting") {
  Harness harness({64, 48, true}, 100);
  harness.Add(100, 4, 5);
  REQUIRE(harness.scheduler().waiting() == 4);
  harness.Step();
  REQUIRE(harness.scheduler().running() == 1);
  REQUIRE(harness.scheduler().waiting() == 3);
  harness.Run();
  REQUIRE(harness.scheduler().waiting() == 0);
}

TEST_CASE("The oldest sequence is never preempted") {
  Harness harness({16, 64, false}, 6);
  SequenceGroup* oldest = harness.Add(60, 1, 300);
  for (int i = 0; i < 6; ++i) harness.Add(60, 1, 100);
  int64_t computed = 0;
  while (oldest->sequences[0]->state != SequenceState::kFinished) {
    REQUIRE(oldest->sequences[0]->computed >= computed);
    computed = oldest->sequences[0]->computed;
    harness.Step();
  }
  harness.Run();
  REQUIRE(harness.scheduler().preemptions() > 0);
}

TEST_CASE("A removed group gives everything back at any moment") {
  for (int steps = 0; steps < 30; ++steps) {
    Harness harness({4, 16, true}, 8);
    SequenceGroup* removed = harness.Add(70, 4, 1000);
    for (int i = 0; i < steps; ++i) harness.Step();
    harness.scheduler().Remove(removed);
    REQUIRE(!harness.scheduler().has_work());
    REQUIRE(harness.scheduler().blocks().used_blocks() == 0);
  }
}

TEST_CASE("Samples that come with tokens share the prompt and draw nothing at its end") {
  Harness harness({64, 48, true}, 100);
  SequenceGroup* group = harness.Add(130, 4, 90, {70, 0, 5, 64});
  while (!group->forked) {
    for (const auto& sequence : group->sequences) {
      REQUIRE(sequence->length() == 130 + sequence->carried);
    }
    harness.Step();
  }
  // The prompt is read, and who has no token yet drew its first.
  REQUIRE(harness.scheduler().prefill_tokens() == 130);
  REQUIRE(group->sequences[1]->length() == 131);
  REQUIRE(group->sequences[0]->length() == 200);
  REQUIRE(harness.scheduler().blocks().used_blocks() == 3);
  while (group->sequences[3]->length() == 194) harness.Step();
  const int32_t first = group->sequences[0]->blocks[0];
  REQUIRE(harness.scheduler().blocks().holders(first) == 4);
  harness.Run();
  REQUIRE(harness.scheduler().prefill_tokens() == 130 + 70 + 5 + 64);
}

TEST_CASE("A removed group that comes with tokens gives everything back at any moment") {
  for (int steps = 0; steps < 30; ++steps) {
    Harness harness({4, 16, true}, 8);
    SequenceGroup* removed = harness.Add(70, 4, 1000, {20, 0, 100, 3});
    for (int i = 0; i < steps; ++i) harness.Step();
    harness.scheduler().Remove(removed);
    REQUIRE(!harness.scheduler().has_work());
    REQUIRE(harness.scheduler().blocks().used_blocks() == 0);
  }
}

TEST_CASE("Random loads on random pools keep budget, blocks and histories right") {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&random](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
    };
    const int64_t blocks = pick(4, 20);
    Harness harness({pick(1, 12), pick(1, 100), pick(0, 3) != 0}, blocks);
    for (int i = 0; i < 12; ++i) {
      const int64_t prompt = pick(1, 150);
      const int64_t samples = pick(1, 6), max_tokens = pick(1, 256 - prompt);
      std::vector<int64_t> carried;
      if (pick(0, 1) == 0) {
        for (int64_t s = 0; s < samples; ++s) carried.push_back(pick(0, max_tokens - 1));
      }
      harness.Add(prompt, samples, max_tokens, carried);
      for (int64_t steps = pick(0, 20); steps > 0 && harness.scheduler().has_work(); --steps) {
        harness.Step();
      }
    }
    harness.Run();
  }
}

}  // namespace tandem
