// Groups that are not trained yet, with what their samples have so far.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/types/sample.h"
#include "controller/data/prompt.h"
#include "controller/partial_rollout/buffer/buffered_sample.h"
#include "controller/partial_rollout/buffer/resume_check.h"
#include "controller/partial_rollout/buffer/round_spec.h"
#include "controller/workers/rollout_client.h"

namespace tandem {

struct PoolCounts {
  int64_t groups = 0;
  int64_t whole = 0;               // groups whose samples are all finished
  int64_t unfinished_samples = 0;  // of the other groups
  int64_t carried_samples = 0;     // of them: with tokens already
  int64_t tokens = 0;              // response tokens of all samples, finished or not
  int64_t longest_span = 0;        // newest less oldest weight version of one sample

  int64_t unfinished_groups() const { return groups - whole; }
  // "12 groups, 5 of them whole, 33 samples unfinished, 10240 tokens so far", for people.
  std::string Text() const;
};

// What left the pool for a step.
struct TakenGroups {
  std::vector<Prompt> prompts;  // by position in the batch, which is the order of drawing
  int64_t samples = 0;
  int64_t partial_samples = 0;  // of them: with tokens of more than one weight version
  int64_t longest_span = 0;     // newest less oldest weight version of one sample
  int64_t tokens = 0;           // of the responses
};

// One thread at a time: the train loop's, or that of generation beside training until the loop has
// waited for it. Only what Requests puts into GroupRequest::load_continued may be called from any
// thread, at any time, also after the pool has gone on. Token arrays lie in a file that is only
// appended to, a small record of each sample in memory; the file is written anew without what
// nobody refers to any more when that is most of it. Errors of the disk by IoErrorCode.
class SamplePool {
 public:
  // Empty. Makes `dir` (RUN_DIR/partial_pool); its file there ends with the process: what outlives
  // one is in checkpoints.
  static absl::StatusOr<std::unique_ptr<SamplePool>> Open(const std::string& dir,
                                                          PoolOptions options);

  // Fresh groups, behind those that are here. AlreadyExists: a row of the data is here already in
  // that epoch; InvalidArgument: no tokens, or ids outside the vocabulary. Then none is added.
  absl::Status Add(const std::vector<Prompt>& prompts);

  int64_t groups() const { return static_cast<int64_t>(state_.groups.size()); }
  int64_t whole() const;  // asked for between samples: cheaper than Counts
  int64_t unfinished_groups() const { return groups() - whole(); }
  // Unfinished groups with tokens of `version` or older ones: RoundOrder::due_version.
  int64_t due(int64_t version) const;
  PoolCounts Counts() const;

  // FailedPrecondition: order.cuts cannot be of this round, as a sample there is none of its
  // samples, has more tokens already, or none to come. The message names it.
  absl::Status CheckCuts(const RoundOrder& order) const;

  // Begins a round: what to generate of the oldest order.groups groups with unfinished samples, in
  // order of drawing; GroupRequest::group is the pool's own number of the group. Samples that have
  // tokens of max_versions - 1 older versions are final: they make a request of their own, without
  // cap, with interruptible false. The others may be cut, but for a round that is made again.
  // FailedPrecondition: as CheckCuts, or a sample has tokens of newer weights than the round's.
  absl::StatusOr<std::vector<GroupRequest>> Requests(const RoundOrder& order);

  // A sample of the round came back. kStop and kLength: finished; kCut and kAborted: carried, or
  // finished by length where its budget is used up. DataLoss, naming the sample: it does not begin
  // with what the pool has of it, bit for bit; other weights than the round's sampled the rest; an
  // id outside the vocabulary; more tokens than its budget. InvalidArgument: arrays that do not
  // fit. NotFound: none of the pool; AlreadyExists: it came before, or was not asked for.
  // With an error the pool is as before.
  absl::Status Put(const Sample& sample);

  // Of the newest round, without groups that were taken since.
  RoundCounts round() const;
  // Of the newest round, for CutJournal: all that it issued and left unfinished, whether they came
  // back or not. A final sample is among them where its replica was lost and nobody went on with
  // it.
  RoundCuts CutSamples() const;

  // The `n` oldest whole groups leave the pool: their samples are handed over one by one, in order
  // of group and index, with Sample::group the position in the batch, segments and index filled in.
  // FailedPrecondition: fewer are whole. With an error of `on_sample` none has left.
  absl::StatusOr<TakenGroups> Take(
      int64_t n, const std::function<absl::Status(int64_t position, Sample sample)>& on_sample);

  // GoBack undoes all since the newest Mark (Open, Load and Clear mark too): of a step that is
  // dropped, so that the pool is again that of the last finished step.
  void Mark();
  void GoBack();
  absl::Status Clear();

  // Into `checkpoint`/partial_pool (saved_buffer.h), whole or not at all, durable. Samples that a
  // round has out are saved as they were before it.
  // `step`: finished ones.
  absl::Status Save(const std::string& checkpoint, int64_t step) const;
  // In place of what is here; without a pool in `checkpoint` empty. Errors as ReadFittingPool; with
  // one nothing changes.
  absl::Status Load(const std::string& checkpoint, const DataRows& rows, int64_t step);

 private:
  SamplePool(std::string dir, PoolOptions options)
      : dir_(std::move(dir)), options_(std::move(options)) {}

  absl::Status CheckPrompt(const Prompt& prompt) const;
  // What the round has to do with each sample of `group`; those that are not in it, with nothing.
  std::vector<RoundPart> PlanGroup(const PooledGroup& group, const RoundOrder& order) const;
  absl::Status CheckVersions(const RoundOrder& order) const;
  // Of one kind of a group's samples, `positions` in it.
  GroupRequest MakeRequest(int64_t number,
                           const PooledGroup& group,
                           const std::vector<size_t>& positions,
                           const RoundOrder& order) const;
  // What `sample` says against what the pool knows of it, and then against what it has.
  absl::Status CheckArrays(const Sample& sample, const PooledGroup& group) const;
  absl::Status CheckGrowth(const Sample& sample, const PooledSample& known) const;
  absl::Status CheckBeginning(const Sample& sample, const PooledSample& known) const;
  absl::StatusOr<Sample> ReadSample(const PooledGroup& group, size_t index) const;
  // Leaves out of the file what nobody refers to, where that is most of it.
  void Compact();

  std::string dir_;
  PoolOptions options_;
  PoolState state_;
  PoolState mark_;
  RoundOrder order_;  // of the newest round
};

}  // namespace tandem
