#include "controller/partial_rollout/buffer/rollout_buffer.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

#include "common/base/log.h"
#include "common/base/status.h"

namespace tandem {
namespace {

// A row of the training data in one epoch.
using RowKey = std::pair<uint64_t, uint64_t>;
RowKey KeyOf(const Prompt& prompt) { return {prompt.epoch, prompt.data_row}; }

}  // namespace

std::string BufferCounts::Text() const {
  return fmt::format("{} groups, {} of them complete, {} samples unfinished, {} tokens so far",
                     groups, complete, unfinished_samples, tokens);
}

absl::StatusOr<std::unique_ptr<RolloutBuffer>> RolloutBuffer::Open(const std::string& dir,
                                                                   BufferOptions options) {
  TANDEM_RETURN_IF_ERROR(MakeFolder(dir));
  std::unique_ptr<RolloutBuffer> buffer(new RolloutBuffer(dir, std::move(options)));
  TANDEM_ASSIGN_OR_RETURN(buffer->state_.file, TokenFile::Create(dir));
  buffer->Commit();
  return buffer;
}

absl::Status RolloutBuffer::CheckPrompt(const Prompt& prompt) const {
  if (prompt.tokens.empty()) {
    return InvalidArgument("the prompt of row {} has no tokens", prompt.data_row);
  }
  for (const int32_t id : prompt.tokens) {
    if (id >= 0 && id < options_.vocab_limit) continue;
    return InvalidArgument("the prompt of row {} has the token id {}, and the tokenizer has {} ids",
                           prompt.data_row, id, options_.vocab_limit);
  }
  return absl::OkStatus();
}

absl::Status RolloutBuffer::Add(const std::vector<Prompt>& prompts) {
  std::set<RowKey> known;
  for (const auto& [number, group] : state_.groups) known.insert(KeyOf(*group.prompt));
  for (const Prompt& prompt : prompts) {
    TANDEM_RETURN_IF_ERROR(CheckPrompt(prompt));
    if (known.insert(KeyOf(prompt)).second) continue;
    return MakeStatus(absl::StatusCode::kAlreadyExists,
                      "row {} of epoch {} was drawn although its group is carried already",
                      prompt.data_row, prompt.epoch);
  }
  for (const Prompt& prompt : prompts) {
    BufferedGroup group{.prompt = std::make_shared<const Prompt>(prompt)};
    for (int64_t i = 0; i < options_.samples_per_prompt; ++i) {
      group.samples.push_back(
          {.sample_id = MakeSampleId(prompt.data_row, prompt.epoch, static_cast<uint64_t>(i))});
    }
    state_.groups.emplace(state_.next_group++, std::move(group));
  }
  return absl::OkStatus();
}

int64_t RolloutBuffer::complete() const {
  return std::count_if(state_.groups.begin(), state_.groups.end(),
                       [](const auto& numbered) { return numbered.second.complete(); });
}

std::set<int64_t> DueGroups(const BufferState& state, const TrainingDeadlines& deadlines) {
  std::set<int64_t> due;
  // `wait`: batches after the next one. StalenessLimit alone bounds the last of them.
  const int64_t batches = std::max<int64_t>(1, deadlines.max_staleness);
  for (int64_t wait = 0; wait < batches; ++wait) {
    const int64_t version = deadlines.due_version + wait * deadlines.updates_per_step;
    int64_t room = wait * deadlines.batch_groups;
    // From the newest on: the oldest ones find no room.
    for (auto it = state.groups.rbegin(); it != state.groups.rend(); ++it) {
      const auto& [number, group] = *it;
      if (group.complete() || group.oldest_version() > version) continue;
      if (room-- <= 0) due.insert(number);
    }
  }
  return due;
}

std::vector<int64_t> RolloutBuffer::OldestComplete(int64_t n) const {
  std::vector<std::pair<int64_t, int64_t>> by_age;  // oldest version, number
  for (const auto& [number, group] : state_.groups) {
    if (group.complete()) by_age.emplace_back(group.oldest_version(), number);
  }
  std::sort(by_age.begin(), by_age.end());
  std::vector<int64_t> oldest;
  for (int64_t i = 0; i < n; ++i) oldest.push_back(by_age[static_cast<size_t>(i)].second);
  std::sort(oldest.begin(), oldest.end());
  return oldest;
}

BufferCounts RolloutBuffer::Counts() const {
  BufferCounts counts{.groups = std::ssize(state_.groups), .complete = complete()};
  for (const auto& [number, group] : state_.groups) {
    for (const BufferedSample& sample : group.samples) {
      const int64_t tokens = sample.tokens();
      counts.unfinished_samples += sample.finished() ? 0 : 1;
      counts.carried_samples += !sample.finished() && tokens > 0 ? 1 : 0;
      counts.tokens += tokens;
      counts.longest_span = std::max(counts.longest_span, sample.span());
    }
  }
  return counts;
}

absl::StatusOr<TakenGroups> RolloutBuffer::Take(
    int64_t n, const std::function<absl::Status(Sample)>& on_sample) {
  if (const BufferCounts counts = Counts(); counts.complete < n) {
    return FailedPrecondition("{} complete groups requested, the buffer has {}", n, counts.Text());
  }
  TakenGroups taken;
  const std::vector<int64_t> leaving = OldestComplete(n);
  for (int64_t position = 0; position < n; ++position) {
    const BufferedGroup& group = state_.groups.at(leaving[static_cast<size_t>(position)]);
    for (const BufferedSample& sample : group.samples) {
      ++taken.samples;
      taken.partial_samples += sample.versions.size() > 1 ? 1 : 0;
      taken.longest_span = std::max(taken.longest_span, sample.span());
      taken.tokens += sample.tokens();
    }
    TANDEM_RETURN_IF_ERROR(ReadGroup(*state_.file, group, position, on_sample));
    taken.prompts.push_back(*group.prompt);
  }
  for (const int64_t number : leaving) state_.groups.erase(number);
  state_.ahead.reset();
  return taken;
}

void RolloutBuffer::Commit() { committed_ = state_; }

void RolloutBuffer::Rollback() { state_ = committed_; }

absl::StatusOr<BufferPlace> RolloutBuffer::Find(const Sample& sample) const {
  if (const auto group = state_.groups.find(sample.group); group != state_.groups.end()) {
    for (size_t i = 0; i < group->second.samples.size(); ++i) {
      if (group->second.samples[i].sample_id == sample.sample_id)
        return BufferPlace{&group->second, i};
    }
  }
  return MakeStatus(absl::StatusCode::kNotFound,
                    "sample {:#x} of group {} is not in the rollout buffer", sample.sample_id,
                    sample.group);
}

absl::Status RolloutBuffer::Extend(const Sample& sample) {
  TANDEM_ASSIGN_OR_RETURN(const BufferPlace place, Find(sample));
  BufferedSample& known = state_.groups.at(sample.group).samples[place.index];
  if (sample.response_tokens() > known.tokens()) {
    TANDEM_ASSIGN_OR_RETURN(
        known.offset,
        state_.file->Append({{sample.tokens.begin() + sample.prompt_tokens, sample.tokens.end()},
                             sample.log_probs}));
  }
  known.versions = ToVersionRuns(sample.versions);
  known.log_probs = !sample.log_probs.empty();
  known.temperature = sample.temperature;
  known.off_support = known.off_support || sample.off_support;
  const bool ended =
      sample.finish_reason == FinishReason::kStop || sample.finish_reason == FinishReason::kLength;
  if (ended) {
    known.finish = sample.finish_reason;
  } else if (sample.response_tokens() >= options_.sampling.max_tokens) {
    known.finish = FinishReason::kLength;
  }
  return absl::OkStatus();
}

absl::Status RolloutBuffer::Save(const std::string& checkpoint, int64_t step) const {
  return WriteSavedBuffer(checkpoint, step, options_, state_);
}

absl::StatusOr<BufferState> RolloutBuffer::Import(SavedBuffer saved) const {
  BufferState state{.next_group = saved.next_group, .ahead = saved.ahead};
  TANDEM_ASSIGN_OR_RETURN(state.file, TokenFile::Create(dir_));
  for (auto& [number, group] : saved.groups) {
    for (BufferedSample& sample : group.samples) {
      TANDEM_ASSIGN_OR_RETURN(sample.offset, state.file->Append(saved.Read(sample)));
      const bool used_up = sample.tokens() >= options_.sampling.max_tokens;
      if (!sample.finished() && used_up) sample.finish = FinishReason::kLength;
    }
    state.groups.emplace(number, std::move(group));
  }
  if (saved.arrays != nullptr) TANDEM_RETURN_IF_ERROR(saved.arrays->CheckWhole());
  return state;
}

absl::Status RolloutBuffer::Load(const std::string& checkpoint,
                                 const DataRows& rows,
                                 int64_t step) {
  std::optional<SavedBuffer> saved;
  if (!checkpoint.empty()) {
    TANDEM_ASSIGN_OR_RETURN(saved, ReadFittingBuffer(checkpoint, options_, rows, step));
  }
  TANDEM_ASSIGN_OR_RETURN(state_, Import(saved ? *std::move(saved) : SavedBuffer()));
  Commit();
  return absl::OkStatus();
}

void RolloutBuffer::Compact() {
  if (state_.file->bytes() <= options_.compact_above_bytes) return;
  int64_t live = 0;
  for (const auto& [number, group] : state_.groups) {
    for (const BufferedSample& sample : group.samples) {
      live += TokenFile::Bytes(sample.tokens(), sample.log_probs);
    }
  }
  if (2 * live > state_.file->bytes()) return;
  BufferState compacted = state_;
  const absl::Status copied = [&]() -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(compacted.file, TokenFile::Create(dir_));
    for (auto& [number, group] : compacted.groups) {
      for (BufferedSample& sample : group.samples) {
        TANDEM_ASSIGN_OR_RETURN(
            const TokenArrays arrays,
            state_.file->Read(sample.offset, sample.tokens(), sample.log_probs));
        TANDEM_ASSIGN_OR_RETURN(sample.offset, compacted.file->Append(arrays));
      }
    }
    return absl::OkStatus();
  }();
  if (copied.ok()) {
    state_ = std::move(compacted);
  } else {
    LogWarn("Could not compact the rollout buffer's file, keeping it as it is: {}",
            std::string(copied.message()));
  }
}

}  // namespace tandem
