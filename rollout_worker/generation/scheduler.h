// Reference counts of the KV blocks, without their bytes. A block with several holders is
// read-only; a holder that wants to write copies it first (the scheduler's copy on write).
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

#include "common/memory/op_sizes.h"
#include "rollout_worker/generation/sequence.h"

namespace tandem {

// Not thread-safe. Deterministic: equal calls give equal block ids.
class BlockAllocator {
 public:
  explicit BlockAllocator(int64_t num_blocks);

  // Appends `count` blocks with one holder each. ResourceExhausted takes none.
  absl::Status Allocate(int64_t count, std::vector<int32_t>* blocks);
  // One more holder for each block, which must be held already.
  void Share(const std::vector<int32_t>& blocks);
  // One holder less; without holders a block is free again.
  void Free(const std::vector<int32_t>& blocks);

  int64_t num_blocks() const { return static_cast<int64_t>(holders_.size()); }
  int64_t free_blocks() const { return static_cast<int64_t>(free_.size()); }
  int64_t used_blocks() const { return num_blocks() - free_blocks(); }
  int64_t holders(int32_t block) const { return holders_[static_cast<size_t>(block)]; }

 private:
  std::vector<int32_t> holders_;
  std::vector<int32_t> free_;  // last in, first out: the block used last is warm in cache
};

// Which tokens the next forward pass computes: continuous batching with chunked prefill, first come
// first served. Pure bookkeeping: no tensors, no clock, no threads; equal calls give equal plans.
//
// A group's prompt is prefilled once, by its first sequence (the leader). When that is done the
// group forks: every sample draws its first token from the leader's last row, and all hold the
// prompt's blocks; a sample copies a shared block before it writes into it. Samples that come with
// tokens of earlier rounds draw nothing from that row: after the fork each prefills its own. When
// blocks run out, the newest sequence that holds some releases all of them and starts over later,
// recomputing its tokens (preemption by recompute). The oldest sequence is never preempted by
// others, so a pool that holds one longest sequence always makes progress.
struct SchedulerOptions {
  int64_t max_num_seqs = 1;
  int64_t max_num_batched_tokens = 1;
  bool share_prompts = true;  // rollout.enable_prefix_caching
};

// Which sequences draw a token from a span's last row.
enum class Samplers {
  kNobody,    // the prefill continues
  kSequence,  // the span's own
  kGroup      // all without continued tokens in its group: the prompt's prefill ends
};

// `tokens` positions of `sequence` from `first_position` on. Its blocks cover them.
struct PlannedSpan {
  Sequence* sequence = nullptr;
  int64_t first_position = 0;
  int64_t tokens = 0;
  Samplers samplers = Samplers::kNobody;

  template <typename Visit>
  void ForEachSampler(const Visit& visit) const {
    if (samplers == Samplers::kSequence) visit(sequence);
    if (samplers != Samplers::kGroup) return;
    for (const auto& sample : sequence->group->sequences) {
      if (sample->carried == 0) visit(sample.get());
    }
  }
};

struct StepPlan {
  std::vector<PlannedSpan> spans;  // oldest first
  std::vector<BlockCopy> copies;   // in every layer, before the forward pass; in order
  int64_t tokens = 0;              // of all spans, at most max_num_batched_tokens
};

// Not thread-safe. Groups are borrowed until every sequence is finished or Remove was called.
class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, int64_t num_blocks);

  // Queues a group; its arrival number decides its rank among all others.
  void Add(SequenceGroup* group);
  // The next step. Empty when there is no work. Each plan must be followed by Advance. Valid until
  // the next call. Allocates nothing while the set of running sequences stays the same.
  const StepPlan& Schedule();
  // The plan was computed: marks its tokens, forks groups whose prompt is complete. The caller then
  // appends one token to every sampler, and may Finish it.
  void Advance(const StepPlan& plan);
  // Releases the sequence's blocks; it is never scheduled again.
  void Finish(Sequence* sequence);
  // Finishes all sequences of the group that are not finished yet.
  void Remove(SequenceGroup* group);

  bool has_work() const { return !running_.empty() || !waiting_.empty(); }
  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  // Samples that do not run, those of prompts still to be prefilled included.
  int64_t waiting() const;
  int64_t preemptions() const { return preemptions_; }
  // Tokens computed before a sample draws its first: each prompt once, if shared, and what samples
  // came with.
  int64_t prefill_tokens() const { return prefill_tokens_; }
  const BlockAllocator& blocks() const { return allocator_; }

 private:
  using Key = std::pair<int64_t, int64_t>;  // arrival, index
  using Queue = std::map<Key, Sequence*>;
  static Key KeyOf(const Sequence& s) { return {s.group->arrival, s.index}; }

  void PlanRunning(int64_t* budget, bool* preempted);
  void PlanAdmissions(int64_t* budget);
  // Plans up to `limit` tokens of the sequence; false when blocks ran out even after preempting
  // everything newer (then the sequence itself was preempted).
  bool PlanSequence(Sequence* sequence, int64_t limit, bool* preempted);
  // Blocks that [computed, end) needs beyond those held, copies of shared blocks included.
  int64_t MissingBlocks(const Sequence& sequence, int64_t end) const;
  void TakeBlocks(Sequence* sequence, int64_t end);
  // Takes over the prompt's full blocks from a sample of the same group that has them.
  void ReusePrompt(Sequence* sequence);
  // Preempts the newest holder of blocks that is newer than `key`. False: there is none.
  bool PreemptNewerThan(const Key& key);
  void Preempt(Sequence* sequence);
  void Fork(SequenceGroup* group);
  void SetWaiting(Sequence* sequence);

  const SchedulerOptions options_;
  BlockAllocator allocator_;
  Queue running_, waiting_;  // oldest first
  StepPlan plan_;
  int64_t preemptions_ = 0;
  int64_t prefill_tokens_ = 0;
};

}  // namespace tandem
