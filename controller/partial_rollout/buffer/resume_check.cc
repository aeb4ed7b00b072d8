#include "controller/partial_rollout/buffer/resume_check.h"

#include <iterator>
#include <set>
#include <vector>

#include <fmt/ranges.h>

#include "common/base/status.h"

namespace tandem {
namespace {

constexpr char kAnew[] =
    "or start over with trainer.resume_mode=disable, which keeps the old checkpoints aside";

absl::Status DoesNotFit(const SavedBuffer& saved, const std::string& why) {
  return InvalidArgument("{} holds {} groups that are not trained yet, and {}, {}", saved.folder,
                         saved.groups.size(), why, kAnew);
}

absl::Status CheckSettings(const SavedBuffer& saved, const BufferOptions& options) {
  if (saved.tokenizer_digest != options.tokenizer_digest ||
      saved.vocab_limit != options.vocab_limit) {
    return DoesNotFit(
        saved, fmt::format("another tokenizer made their tokens ({} with {} ids, here {} with {}): "
                           "set model.path to the model that the run was started with",
                           saved.tokenizer_digest, saved.vocab_limit, options.tokenizer_digest,
                           options.vocab_limit));
  }
  std::vector<std::string> changes;
  for (const auto& [key, now] : FixedSettings(options)) {
    const auto before = saved.settings.find(key);
    if (before != saved.settings.end() && before->second == now) continue;
    changes.push_back(fmt::format("{} is {} and was {}", key, now,
                                  before == saved.settings.end() ? "not set" : before->second));
  }
  if (changes.empty()) return absl::OkStatus();
  return DoesNotFit(saved,
                    fmt::format("a response cannot continue with other settings than it began "
                                "with: {}; set {} back",
                                fmt::join(changes, ", "), changes.size() == 1 ? "it" : "them"));
}

absl::Status CheckLength(const SavedBuffer& saved,
                         const BufferedSample& sample,
                         const BufferOptions& options) {
  const int64_t budget = options.sampling.max_tokens;
  const bool too_long = sample.tokens() > budget;
  const bool ended_early = sample.finish == FinishReason::kLength && sample.tokens() < budget &&
                           sample.tokens() == saved.response_length;
  if (!too_long && !ended_early) return absl::OkStatus();
  return DoesNotFit(
      saved,
      fmt::format("data.max_response_length is {} and was {}: sample {:#x} {} {} tokens; set "
                  "it back",
                  budget, saved.response_length, sample.sample_id,
                  too_long ? "has" : "was ended by length at", sample.tokens()));
}

absl::Status CheckGroup(const SavedBuffer& saved,
                        const BufferedGroup& group,
                        const BufferOptions& options,
                        const DataRows& rows) {
  const Prompt& prompt = *group.prompt;
  const Prompt* row = rows ? rows(prompt.data_row) : nullptr;
  if (rows && (row == nullptr || row->tokens != prompt.tokens)) {
    return DoesNotFit(
        saved, fmt::format("row {} of the training data {}: give data.train_files, and how they "
                           "are read, as the run was started with",
                           prompt.data_row,
                           row == nullptr ? "is not there any more" : "is another prompt"));
  }
  const auto check_id = [&](int32_t id, uint64_t sample_id) {
    if (id >= 0 && id < options.vocab_limit) return absl::OkStatus();
    return MakeStatus(
        absl::StatusCode::kDataLoss,
        "{}: sample {:#x} holds the token id {}, and the tokenizer has {} ids; resume "
        "from an earlier checkpoint with trainer.resume_mode=resume_path",
        saved.folder, sample_id, id, options.vocab_limit);
  };
  if (std::ssize(group.samples) != options.samples_per_prompt || prompt.tokens.empty()) {
    return MakeStatus(absl::StatusCode::kDataLoss,
                      "{}: the group of row {} has {} samples and {} prompt tokens; resume from an "
                      "earlier checkpoint with trainer.resume_mode=resume_path",
                      saved.folder, prompt.data_row, group.samples.size(), prompt.tokens.size());
  }
  for (const BufferedSample& sample : group.samples) {
    for (const int32_t id : prompt.tokens) {
      TANDEM_RETURN_IF_ERROR(check_id(id, sample.sample_id));
    }
    for (const int32_t id : saved.Read(sample).tokens) {
      TANDEM_RETURN_IF_ERROR(check_id(id, sample.sample_id));
    }
    TANDEM_RETURN_IF_ERROR(CheckLength(saved, sample, options));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::optional<SavedBuffer>> ReadFittingBuffer(const std::string& checkpoint,
                                                             const BufferOptions& options,
                                                             const DataRows& rows,
                                                             int64_t step) {
  TANDEM_ASSIGN_OR_RETURN(std::optional<SavedBuffer> saved, ReadSavedBuffer(checkpoint));
  if (!saved) return saved;
  if (saved->step != step) {
    return DoesNotFit(*saved, fmt::format("it was saved after step {}, and the checkpoint after "
                                          "step {}: bring the checkpoint's own partial_pool back",
                                          saved->step, step));
  }
  if (saved->groups.empty()) return saved;
  TANDEM_RETURN_IF_ERROR(CheckSettings(*saved, options));
  for (const auto& [number, group] : saved->groups) {
    TANDEM_RETURN_IF_ERROR(CheckGroup(*saved, group, options, rows));
  }
  return saved;
}

absl::Status CheckNoBuffer(const std::string& checkpoint) {
  TANDEM_ASSIGN_OR_RETURN(const std::optional<SavedBuffer> saved, ReadSavedBuffer(checkpoint));
  if (!saved || saved->groups.empty()) return absl::OkStatus();
  return FailedPrecondition(
      "{} holds {} groups that are not trained yet, and partial rollout and "
      "trainer.off_policy_steps are off, which would lose them: give the keys that the run had, or "
      "rollout.partial.max_tokens_per_round={}, which interrupts nothing and trains them first, "
      "and can be removed once partial/carried_groups and partial/whole_groups_left are 0; or "
      "start over with trainer.resume_mode=disable, which keeps the old checkpoints aside",
      saved->folder, saved->groups.size(), saved->response_length);
}

absl::Status CheckWholeGroups(const SavedBuffer& saved, int64_t batch_groups) {
  std::set<int64_t> versions;
  int64_t unfinished = 0;
  for (const auto& [number, group] : saved.groups) {
    unfinished += group.complete() ? 0 : 1;
    for (const BufferedSample& sample : group.samples) {
      for (const VersionRun& run : sample.versions) versions.insert(run.version);
    }
  }
  if (unfinished == 0 && versions.size() <= 1) {
    if (std::ssize(saved.groups) <= batch_groups) return absl::OkStatus();
    return FailedPrecondition(
        "{} holds {} groups for the next step, and data.train_batch_size={} trains so few that the "
        "others would be more than one step old: set it back, or start over with "
        "trainer.resume_mode=disable, which keeps the old checkpoints aside",
        saved.folder, saved.groups.size(), batch_groups);
  }
  return FailedPrecondition(
      "{} holds {} groups that partial rollout has left, {} of them unfinished, with tokens of {} "
      "weight versions, and trainer.off_policy_steps=1 trains whole groups of one version: "
      "continue "
      "with the keys of rollout.partial and without off_policy_steps, or start over with "
      "trainer.resume_mode=disable, which keeps the old checkpoints aside",
      saved.folder, saved.groups.size(), unfinished, versions.size());
}

}  // namespace tandem
