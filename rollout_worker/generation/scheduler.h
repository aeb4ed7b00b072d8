// The rollout's scheduler: which tokens each forward pass computes, and which KV blocks they hold.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

#include "common/memory/op_sizes.h"
#include "rollout_worker/generation/sequence.h"

namespace tandem {

// Reference counts of the KV blocks, not their bytes. A block with several holders is read-only; a
// holder copies it before writing (the scheduler's copy-on-write). Not thread-safe. Deterministic:
// the same calls give the same block ids.
class BlockAllocator {
 public:
  explicit BlockAllocator(int64_t num_blocks);

  // Appends `count` blocks with one holder each. ResourceExhausted: too few blocks are free; none
  // is allocated.
  absl::Status Allocate(int64_t count, std::vector<int32_t>* blocks);
  // Adds a holder to each block; the blocks must already be held.
  void Share(const std::vector<int32_t>& blocks);
  // Removes a holder from each block; a block without holders is free.
  void Free(const std::vector<int32_t>& blocks);

  int64_t num_blocks() const { return static_cast<int64_t>(holders_.size()); }
  int64_t free_blocks() const { return static_cast<int64_t>(free_.size()); }
  int64_t used_blocks() const { return num_blocks() - free_blocks(); }
  int64_t holders(int32_t block) const { return holders_[static_cast<size_t>(block)]; }

 private:
  std::vector<int32_t> holders_;
  std::vector<int32_t> free_;  // last in, first out: the block used last is warm in cache
};

struct SchedulerOptions {
  int64_t max_num_seqs = 1;
  int64_t max_num_batched_tokens = 1;
  bool share_prompts = true;  // rollout.enable_prefix_caching
};

// Which sequences draw a token from a span's last row.
enum class Samplers {
  kNobody,    // no sequence: the prefill continues
  kSequence,  // the span's own sequence
  kGroup      // all of the group without continued tokens: the prompt's prefill ends
};

// Plans `tokens` positions of `sequence`, starting at `first_position`; its blocks cover them.
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
  std::vector<BlockCopy> copies;   // done in every layer before the forward pass, in this order
  int64_t tokens = 0;              // the sum over all spans, at most max_num_batched_tokens
};

// Decides which tokens the next forward pass computes: continuous batching with chunked prefill,
// first come first served. Pure bookkeeping without tensors, clock or threads: the same calls give
// the same plans.
//
// A group's prompt is prefilled once, by its first sequence (the leader). Then the group forks:
// every sample draws its first token from the leader's last row, and all samples hold the prompt's
// blocks; a sample copies a shared block before it writes to it. Samples with tokens of earlier
// rounds draw no token from that row: after the fork each prefills its own tokens. When blocks run
// out, the newest sequence that holds any releases all of them and later recomputes its tokens
// (preemption by recompute). The oldest sequence is never preempted by others, so a pool that holds
// one sequence of maximum length always makes progress.
//
// Not thread-safe. Groups are borrowed until all their sequences are finished or Remove is called.
class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, int64_t num_blocks);

  // Queues a group. Its arrival number sets its priority: earlier groups are scheduled first.
  void Add(SequenceGroup* group);
  // Plans the next step; the plan is empty when there is no work. Each plan must be followed by
  // Advance, and is valid until the next call. Allocates no memory while the set of running
  // sequences stays the same.
  const StepPlan& Schedule();
  // Called when the plan was computed: marks its tokens as computed and forks groups whose prompt
  // is complete. The caller then appends one token to every sampler, and may Finish it.
  void Advance(const StepPlan& plan);
  // Releases the sequence's blocks; it is never scheduled again.
  void Finish(Sequence* sequence);
  // Finishes all sequences of the group that are not finished yet.
  void Remove(SequenceGroup* group);

  bool has_work() const { return !running_.empty() || !waiting_.empty(); }
  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  // Samples that are not running, including those of prompts that are still to be prefilled.
  int64_t waiting() const;
  int64_t preemptions() const { return preemptions_; }
  // Tokens computed before the first draws of samples: each prompt, counted once if shared, and the
  // samples' continued tokens.
  int64_t prefill_tokens() const { return prefill_tokens_; }
  // Tokens of prompts that samples did not compute, as they hold the blocks of another sample.
  int64_t prefix_hit_tokens() const { return prefix_hit_tokens_; }
  const BlockAllocator& blocks() const { return allocator_; }

 private:
  using Key = std::pair<int64_t, int64_t>;  // arrival, index
  using Queue = std::map<Key, Sequence*>;
  static Key KeyOf(const Sequence& s) { return {s.group->arrival, s.index}; }

  void PlanRunning(int64_t* budget, bool* preempted);
  void PlanAdmissions(int64_t* budget);
  // Plans up to `limit` tokens of the sequence. Returns false if blocks ran out even after
  // preempting all newer sequences; the sequence itself was then preempted.
  bool PlanSequence(Sequence* sequence, int64_t limit, bool* preempted);
  // Number of blocks that positions [computed, end) need in addition to those held, including
  // copies of shared blocks.
  int64_t MissingBlocks(const Sequence& sequence, int64_t end) const;
  void TakeBlocks(Sequence* sequence, int64_t end);
  // Shares the prompt's full blocks of another sample of the group that still holds them.
  void ReusePrompt(Sequence* sequence);
  // Preempts the newest sequence that holds blocks and is newer than `key`. Returns false if there
  // is none.
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
  int64_t prefix_hit_tokens_ = 0;
};

}  // namespace tandem
