// The rollout buffer: groups that are not trained yet, with the tokens that their samples have so
// far.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
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
#include "controller/partial_rollout/buffer/saved_buffer.h"

namespace tandem {

struct BufferCounts {
  int64_t groups = 0;
  int64_t complete = 0;            // groups whose samples are all finished
  int64_t unfinished_samples = 0;  // of the other groups
  int64_t carried_samples = 0;     // unfinished samples that have tokens already
  int64_t tokens = 0;              // response tokens of all samples, finished or not
  int64_t longest_span = 0;        // newest minus oldest weight version of one sample

  int64_t unfinished_groups() const { return groups - complete; }
  // "12 groups, 5 of them complete, 33 samples unfinished, 10240 tokens so far", for people.
  std::string Text() const;
};

// Where the buffer keeps a sample; valid until the buffer changes.
struct BufferPlace {
  const BufferedGroup* group = nullptr;
  size_t index = 0;  // of the sample in the group

  const BufferedSample& sample() const { return group->samples[index]; }
};

// The groups that leave the buffer for a step.
struct TakenGroups {
  std::vector<Prompt> prompts;  // by position in the batch: the order in which they were drawn
  int64_t samples = 0;
  int64_t partial_samples = 0;  // samples with tokens of more than one weight version
  int64_t longest_span = 0;     // newest minus oldest weight version of one sample
  int64_t tokens = 0;           // response tokens
};

// Used by one thread at a time: the train loop's, or that of BackgroundGeneration until its End
// returns. Token arrays are stored in a file that is only appended to, and memory holds a small
// record of each sample. Errors of the disk by IoErrorCode.
class RolloutBuffer {
 public:
  // Opens an empty buffer. Creates `dir` (RUN_DIR/partial_pool). The token file there disappears
  // with the process; checkpoints hold what must outlive it.
  static absl::StatusOr<std::unique_ptr<RolloutBuffer>> Open(const std::string& dir,
                                                             BufferOptions options);

  const BufferOptions& options() const { return options_; }
  const BufferState& state() const { return state_; }
  int64_t complete() const;  // groups; polled between samples, and cheaper than Counts
  BufferCounts Counts() const;

  // Appends a group for each prompt. AlreadyExists: the buffer has that row of the data in that
  // epoch; InvalidArgument: a prompt without tokens, or with ids outside the vocabulary. With an
  // error no group is added.
  absl::Status Add(const std::vector<Prompt>& prompts);

  // By group and sample id. NotFound: the buffer does not have the sample.
  absl::StatusOr<BufferPlace> Find(const Sample& sample) const;

  // Replaces what the buffer has of a sample by `sample`, which Round::Put has checked: the stored
  // tokens, continued. kStop and kLength finish it, and so does a budget that is used up. Errors
  // as Find; with an error the buffer is unchanged.
  absl::Status Extend(const Sample& sample);

  // Moves the `n` oldest complete groups out of the buffer: those whose first token is of the
  // oldest weights, in the order in which they were drawn where that is equal. `on_sample` receives
  // their samples one by one, in order of group and index, with Sample::group the position in the
  // batch and segments and index filled in. FailedPrecondition: fewer groups are complete. With an
  // error of `on_sample` all groups stay.
  absl::StatusOr<TakenGroups> Take(int64_t n, const std::function<absl::Status(Sample)>& on_sample);

  // Notes of what step all groups are (BufferState::ahead), until the next Take.
  void SetAhead(const SampledAhead& ahead) { state_.ahead = ahead; }

  // Rollback undoes everything since the newest Commit, Open or Load: after a step that is dropped,
  // the buffer is that of the last finished step.
  void Commit();
  void Rollback();

  // Copies the arrays in use to a new token file if they are less than half of it and it is larger
  // than options().compact_above_bytes. Readers of the old file keep it.
  void Compact();

  // Writes the buffer to `checkpoint`/partial_pool (saved_buffer.h), completely or not at all,
  // durable. `step`: the number of finished steps.
  absl::Status Save(const std::string& checkpoint, int64_t step) const;
  // Replaces the buffer by that of `checkpoint`, or empties it where the path is empty or the
  // checkpoint has none. Errors as ReadFittingBuffer; with an error nothing changes.
  absl::Status Load(const std::string& checkpoint, const DataRows& rows, int64_t step);

 private:
  RolloutBuffer(std::string dir, BufferOptions options)
      : dir_(std::move(dir)), options_(std::move(options)) {}

  // The numbers of the `n` complete groups that Take takes, in the order in which they were drawn.
  std::vector<int64_t> OldestComplete(int64_t n) const;
  absl::Status CheckPrompt(const Prompt& prompt) const;
  // A new token file with the groups of `saved`.
  absl::StatusOr<BufferState> Import(SavedBuffer saved) const;

  std::string dir_;
  BufferOptions options_;
  BufferState state_;
  BufferState committed_;
};

// The unfinished groups, by number, that the next batch must wait for: all that may not wait for
// another batch, and the oldest of those that may wait for `k` batches, as far as there are more
// of them than `k` batches have room for.
std::set<int64_t> DueGroups(const BufferState& state, const TrainingDeadlines& deadlines);

}  // namespace tandem
