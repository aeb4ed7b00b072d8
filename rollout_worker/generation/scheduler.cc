#include "rollout_worker/generation/scheduler.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/base/check.h"
#include "common/base/status.h"

namespace tandem {

BlockAllocator::BlockAllocator(int64_t num_blocks) : holders_(static_cast<size_t>(num_blocks), 0) {
  for (int64_t block = num_blocks - 1; block >= 0; --block) {
    free_.push_back(static_cast<int32_t>(block));
  }
}

absl::Status BlockAllocator::Allocate(int64_t count, std::vector<int32_t>* blocks) {
  if (count > free_blocks()) {
    return MakeStatus(absl::StatusCode::kResourceExhausted,
                      "the KV pool has {} of {} blocks free, {} are needed", free_blocks(),
                      num_blocks(), count);
  }
  for (int64_t i = 0; i < count; ++i) {
    blocks->push_back(free_.back());
    holders_[static_cast<size_t>(free_.back())] = 1;
    free_.pop_back();
  }
  return absl::OkStatus();
}

void BlockAllocator::Share(const std::vector<int32_t>& blocks) {
  for (const int32_t block : blocks) {
    TANDEM_CHECK(holders(block) > 0, fmt::format("block {} is free and cannot be shared", block));
    ++holders_[static_cast<size_t>(block)];
  }
}

void BlockAllocator::Free(const std::vector<int32_t>& blocks) {
  for (const int32_t block : blocks) {
    TANDEM_CHECK(holders(block) > 0, fmt::format("block {} is freed twice", block));
    if (--holders_[static_cast<size_t>(block)] == 0) free_.push_back(block);
  }
}

namespace {

Sequence* NewestHolder(const std::map<std::pair<int64_t, int64_t>, Sequence*>& queue) {
  for (auto it = queue.rbegin(); it != queue.rend(); ++it) {
    if (!it->second->blocks.empty()) return it->second;
  }
  return nullptr;
}

// The position at which a sequence's next spans end; a leader stops at the end of the prompt, where
// its group forks.
int64_t EndOf(const Sequence& sequence) {
  return sequence.group->forked ? sequence.length() : sequence.group->prompt_tokens;
}

// Reserves capacity for the longest possible response, so that a running sequence grows without
// allocating.
void ReserveToTheEnd(Sequence* sequence) {
  const int64_t length = sequence->group->prompt_tokens + sequence->group->params.max_tokens;
  sequence->tokens.reserve(static_cast<size_t>(length));
  sequence->log_probs.reserve(static_cast<size_t>(sequence->group->params.max_tokens));
  sequence->versions.reserve(static_cast<size_t>(sequence->group->params.max_tokens));
  sequence->blocks.reserve(static_cast<size_t>(KvBlocksFor(length)));
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, int64_t num_blocks)
    : options_(options), allocator_(num_blocks) {}

void Scheduler::Add(SequenceGroup* group) {
  group->forked = !options_.share_prompts || group->sequences.size() == 1;
  for (const auto& sequence : group->sequences) {
    if (group->forked || sequence->index == 0) SetWaiting(sequence.get());
  }
}

const StepPlan& Scheduler::Schedule() {
  plan_.spans.clear();
  plan_.copies.clear();
  plan_.tokens = 0;
  int64_t budget = options_.max_num_batched_tokens;
  bool preempted = false;
  PlanRunning(&budget, &preempted);
  // A sequence that was just preempted would be admitted at once and reclaim the blocks.
  if (!preempted) PlanAdmissions(&budget);
  return plan_;
}

void Scheduler::PlanRunning(int64_t* budget, bool* preempted) {
  // Every later sequence keeps one token of the budget, so that a long prefill never stalls
  // decoding. `earlier` counts the planned sequences that still run: planning preempts only newer
  // ones or the sequence itself.
  int64_t earlier = 0;
  for (auto it = running_.begin(); it != running_.end();) {
    const Key key = it->first;
    const int64_t later = running() - earlier - 1;
    const int64_t before = plan_.tokens;
    if (PlanSequence(it->second, *budget - later, preempted)) ++earlier;
    *budget -= plan_.tokens - before;
    it = running_.upper_bound(key);
  }
}

void Scheduler::PlanAdmissions(int64_t* budget) {
  const int64_t limit = std::min(options_.max_num_seqs, options_.max_num_batched_tokens);
  while (running() < limit && *budget > 0 && !waiting_.empty()) {
    Sequence* sequence = waiting_.begin()->second;
    if (sequence->blocks.empty()) ReusePrompt(sequence);
    // All present tokens must fit, not only the first chunk: a half-finished prefill is of no use.
    if (MissingBlocks(*sequence, sequence->length()) > allocator_.free_blocks()) {
      // If no sequence is running, the oldest one may preempt waiting samples that hold blocks.
      if (running() > 0 || !PreemptNewerThan(KeyOf(*sequence))) return;
      continue;
    }
    waiting_.erase(waiting_.begin());
    running_.emplace(KeyOf(*sequence), sequence);
    sequence->state = SequenceState::kRunning;
    ReserveToTheEnd(sequence);
    const int64_t before = plan_.tokens;
    bool preempted = false;
    PlanSequence(sequence, *budget, &preempted);
    *budget -= plan_.tokens - before;
  }
}

bool Scheduler::PlanSequence(Sequence* sequence, int64_t limit, bool* preempted) {
  const int64_t take = std::min(EndOf(*sequence) - sequence->computed, limit);
  TANDEM_CHECK(take > 0, "a running sequence must have a token to compute and room for it");
  const int64_t end = sequence->computed + take;
  while (MissingBlocks(*sequence, end) > allocator_.free_blocks()) {
    *preempted = true;
    if (!PreemptNewerThan(KeyOf(*sequence))) {
      Preempt(sequence);
      return false;
    }
  }
  TakeBlocks(sequence, end);
  PlannedSpan span = {sequence, sequence->computed, take};
  if (end == EndOf(*sequence)) {
    span.samplers = sequence->group->forked ? Samplers::kSequence : Samplers::kGroup;
  }
  plan_.tokens += take;
  plan_.spans.push_back(span);
  return true;
}

int64_t Scheduler::MissingBlocks(const Sequence& sequence, int64_t end) const {
  const int64_t held = static_cast<int64_t>(sequence.blocks.size());
  int64_t missing = std::max<int64_t>(0, KvBlocksFor(end) - held);
  // Only the block of the first new position can be both held and shared.
  const int64_t first = sequence.computed / kKvBlockTokens;
  if (first < held && allocator_.holders(sequence.blocks[static_cast<size_t>(first)]) > 1) {
    ++missing;
  }
  return missing;
}

void Scheduler::TakeBlocks(Sequence* sequence, int64_t end) {
  std::vector<int32_t>& blocks = sequence->blocks;
  const auto first = static_cast<size_t>(sequence->computed / kKvBlockTokens);
  const bool copy = first < blocks.size() && allocator_.holders(blocks[first]) > 1;
  const absl::Status taken = allocator_.Allocate(MissingBlocks(*sequence, end), &blocks);
  TANDEM_CHECK(taken.ok(), taken.ToString());
  if (!copy) return;
  plan_.copies.push_back({blocks[first], blocks.back()});
  allocator_.Free({blocks[first]});
  blocks[first] = blocks.back();
  blocks.pop_back();
}

void Scheduler::ReusePrompt(Sequence* sequence) {
  const SequenceGroup& group = *sequence->group;
  const int64_t blocks = group.prompt_tokens / kKvBlockTokens;
  if (!options_.share_prompts || !group.forked || blocks == 0) return;
  for (const auto& sibling : group.sequences) {
    if (sibling->computed < blocks * kKvBlockTokens || sibling->blocks.empty()) continue;
    sequence->blocks.assign(sibling->blocks.begin(), sibling->blocks.begin() + blocks);
    allocator_.Share(sequence->blocks);
    sequence->computed = blocks * kKvBlockTokens;
    prefix_hit_tokens_ += sequence->computed;
    return;
  }
}

bool Scheduler::PreemptNewerThan(const Key& key) {
  // Waiting samples that hold their prompt's blocks are preempted first: they lose the least work.
  Sequence* victim = NewestHolder(waiting_);
  if (victim == nullptr || KeyOf(*victim) <= key) victim = NewestHolder(running_);
  if (victim == nullptr || KeyOf(*victim) <= key) return false;
  Preempt(victim);
  return true;
}

void Scheduler::Preempt(Sequence* sequence) {
  allocator_.Free(sequence->blocks);
  sequence->blocks.clear();
  sequence->computed = 0;
  if (sequence->state == SequenceState::kRunning) {
    ++preemptions_;
    running_.erase(KeyOf(*sequence));
    SetWaiting(sequence);
  }
}

void Scheduler::Advance(const StepPlan& plan) {
  for (const PlannedSpan& span : plan.spans) {
    Sequence* sequence = span.sequence;
    sequence->computed += span.tokens;
    const int64_t came_with = sequence->group->prompt_tokens + sequence->carried;
    if (sequence->length() == came_with) prefill_tokens_ += span.tokens;
    if (span.samplers == Samplers::kGroup) Fork(sequence->group);
  }
}

void Scheduler::Fork(SequenceGroup* group) {
  group->forked = true;
  const Sequence& leader = *group->sequences[0];
  for (size_t i = 1; i < group->sequences.size(); ++i) {
    Sequence* sequence = group->sequences[i].get();
    sequence->blocks = leader.blocks;
    allocator_.Share(sequence->blocks);
    sequence->computed = leader.computed;
    prefix_hit_tokens_ += sequence->computed;
    SetWaiting(sequence);
  }
}

void Scheduler::SetWaiting(Sequence* sequence) {
  sequence->state = SequenceState::kWaiting;
  waiting_.emplace(KeyOf(*sequence), sequence);
}

void Scheduler::Finish(Sequence* sequence) {
  if (sequence->state == SequenceState::kFinished) return;
  running_.erase(KeyOf(*sequence));
  waiting_.erase(KeyOf(*sequence));
  allocator_.Free(sequence->blocks);
  sequence->blocks.clear();
  sequence->state = SequenceState::kFinished;
}

void Scheduler::Remove(SequenceGroup* group) {
  for (const auto& sequence : group->sequences) Finish(sequence.get());
}

int64_t Scheduler::waiting() const {
  int64_t count = static_cast<int64_t>(waiting_.size());
  for (const Queue* queue : {&running_, &waiting_}) {
    for (const auto& [key, sequence] : *queue) {
      if (sequence->group->forked) continue;
      count += static_cast<int64_t>(sequence->group->sequences.size()) - 1;
    }
  }
  return count;
}

}  // namespace tandem
