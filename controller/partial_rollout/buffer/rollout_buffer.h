// The rollout buffer: groups that are not trained yet, with the tokens that their samples have so
// far.
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

struct BufferCounts {
  int64_t groups = 0;
  int64_t complete = 0;            // groups whose samples are all finished
  int64_t unfinished_samples = 0;  // of the other groups
  int64_t carried_samples = 0;     // unfinished samples that have tokens already
  int64_t tokens = 0;              // response tokens of all samples, finished or not
  int64_t longest_span = 0;        // newest minus oldest weight version of one sample

  int64_t unfinished_groups() const { return groups - complete; }
  // "12 groups, 5 of them whole, 33 samples unfinished, 10240 tokens so far", for people.
  std::string Text() const;
};

// What left the buffer for a step.
struct TakenGroups {
  std::vector<Prompt> prompts;  // by position in the batch: the order in which they were drawn
  int64_t samples = 0;
  int64_t partial_samples = 0;  // samples with tokens of more than one weight version
  int64_t longest_span = 0;     // newest minus oldest weight version of one sample
  int64_t tokens = 0;           // response tokens
};

// Used by one thread at a time: the train loop's, or that of BackgroundGeneration until its End
// returns. Only the functions that Requests puts into GroupRequest::load_continued may be called by
// any thread at any time, also after the buffer has changed. Token arrays are stored in a file that
// is only appended to, and memory holds a small record of each sample; once most of the file is no
// longer referred to, the rest is copied to a new file. Errors of the disk by IoErrorCode.
class RolloutBuffer {
 public:
  // Opens an empty buffer. Creates `dir` (RUN_DIR/partial_pool), whose token file ends with the
  // process: checkpoints hold what outlives it.
  static absl::StatusOr<std::unique_ptr<RolloutBuffer>> Open(const std::string& dir,
                                                             BufferOptions options);

  // Appends a group for each prompt. AlreadyExists: the buffer has that row of the data in that
  // epoch; InvalidArgument: a prompt without tokens, or with ids outside the vocabulary. With an
  // error no group is added.
  absl::Status Add(const std::vector<Prompt>& prompts);

  int64_t groups() const { return static_cast<int64_t>(state_.groups.size()); }
  int64_t complete() const;  // polled between samples: cheaper than Counts
  int64_t unfinished_groups() const { return groups() - complete(); }
  // Unfinished groups with tokens of weight version `version` or older: see RoundSpec::due_version.
  int64_t overdue(int64_t version) const;
  BufferCounts Counts() const;

  // FailedPrecondition: spec.interruption_points cannot be of this round, as a sample there is not
  // one of the round's samples, has more tokens already, or has none left to generate. The message
  // names it.
  absl::Status CheckInterruptionPoints(const RoundSpec& spec) const;

  // Begins a round: returns requests for the unfinished samples of the oldest spec.groups
  // unfinished groups, in the order in which the groups were drawn; GroupRequest::group is the
  // buffer's number of the group. Samples with tokens of max_versions - 1 older versions are final:
  // they go into a request of their own, without cap and not interruptible. The others are
  // interruptible, unless the round is repeated from the journal. FailedPrecondition: as
  // CheckInterruptionPoints, or a sample has tokens of newer weights than the round's.
  absl::StatusOr<std::vector<GroupRequest>> Requests(const RoundSpec& spec);

  // Stores a sample that a rollout returned in the current round. kStop and kLength finish it; kCut
  // and kAborted leave it for a later round, or finish it by length where its budget is used up.
  // DataLoss, naming the sample: it does not begin, bit for bit, with the tokens that the buffer
  // has; other weights than the round's sampled the rest; a token id is outside the vocabulary; it
  // has more tokens than its budget. InvalidArgument: arrays of different lengths. NotFound: the
  // buffer does not have the sample; AlreadyExists: it was returned before, or was not requested.
  // With an error the buffer is unchanged.
  absl::Status Put(const Sample& sample);

  // Counts of the newest round, without groups that have been taken since.
  RoundCounts round() const;
  // Where the newest round left its unfinished samples, for RoundJournal, whether they were
  // returned or not. Final samples are included where their replica was lost and no other continued
  // them.
  InterruptionPoints GetInterruptionPoints() const;

  // Moves the `n` oldest complete groups out of the buffer. `on_sample` receives their samples one
  // by one, in order of group and index, with Sample::group the position in the batch and segments
  // and index filled in. FailedPrecondition: fewer groups are complete. With an error of
  // `on_sample` all groups stay.
  absl::StatusOr<TakenGroups> Take(
      int64_t n, const std::function<absl::Status(int64_t position, Sample sample)>& on_sample);

  // Rollback undoes everything since the newest Commit, Open, Load or Clear: after a step that is
  // dropped, the buffer is that of the last finished step.
  void Commit();
  void Rollback();
  absl::Status Clear();

  // Writes the buffer to `checkpoint`/partial_pool (saved_buffer.h), completely or not at all,
  // durable. Samples that are being generated are saved as they were before the round. `step`: the
  // number of finished steps.
  absl::Status Save(const std::string& checkpoint, int64_t step) const;
  // Replaces the buffer by that of `checkpoint`, or empties it where the checkpoint has none.
  // Errors as ReadFittingBuffer; with an error nothing changes.
  absl::Status Load(const std::string& checkpoint, const DataRows& rows, int64_t step);

 private:
  RolloutBuffer(std::string dir, BufferOptions options)
      : dir_(std::move(dir)), options_(std::move(options)) {}

  absl::Status CheckPrompt(const Prompt& prompt) const;
  // What the round does with each sample of `group`; nothing with samples that are not in the
  // round.
  std::vector<PlannedSample> PlanGroup(const BufferedGroup& group, const RoundSpec& spec) const;
  absl::Status CheckVersions(const RoundSpec& spec) const;
  // For the samples at `positions` of `group`, which are all final or all not.
  GroupRequest MakeRequest(int64_t number,
                           const BufferedGroup& group,
                           const std::vector<size_t>& positions,
                           const RoundSpec& spec) const;
  // Checks a returned sample: its arrays against each other and the group, its length and versions
  // against the round, and its beginning against the stored tokens.
  absl::Status CheckArrays(const Sample& sample, const BufferedGroup& group) const;
  absl::Status CheckGrowth(const Sample& sample, const BufferedSample& known) const;
  absl::Status CheckBeginning(const Sample& sample, const BufferedSample& known) const;
  absl::StatusOr<Sample> ReadSample(const BufferedGroup& group, size_t index) const;
  // Copies the arrays in use to a new file if they are less than half of the file.
  void Compact();

  std::string dir_;
  BufferOptions options_;
  BufferState state_;
  BufferState committed_;
  RoundSpec spec_;  // of the newest round
};

}  // namespace tandem
