#include "controller/assembly/carried_groups.h"

#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "controller/assembly/input_digests.h"
#include "controller/partial_rollout/buffer/resume_check.h"
#include "controller/plan/lora_checks.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

// Identifies all settings that the run's samples and weights depend on, so that only an equal run
// continues its journal.
absl::StatusOr<std::string> JournalIdentity(const v1::Config& config,
                                            const BufferOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<ConfigChange> settings,
                          DiffConfig(ConfigToYaml(v1::Config()), config));
  return fmt::format("{}; {}", RoundJournalIdentity(options),
                     fmt::join(ChangesOfTheRun(settings), "; "));
}

BufferOptions MakeBufferOptions(const v1::Config& config,
                                const TrainOptions& train,
                                const RunInputs& inputs) {
  return {.tokenizer_digest = inputs.tokenizer->digest(),
          .vocab_limit = inputs.tokenizer->vocab_size(),
          .samples_per_prompt = train.samples_per_prompt,
          .sampling = train.sampling,
          .log_probs = config.rollout().calculate_log_probs()};
}

}  // namespace

absl::Status CheckCarriedGroups(const v1::Config& config,
                                const TrainOptions& train,
                                const RunInputs& inputs,
                                const std::string& checkpoint,
                                int64_t step) {
  if (!train.partial.enabled) return CheckNoBuffer(checkpoint);
  const auto row = [&inputs](uint64_t data_row) { return inputs.prompts->Row(data_row); };
  TANDEM_ASSIGN_OR_RETURN(
      const std::optional<SavedBuffer> saved,
      ReadFittingBuffer(checkpoint, MakeBufferOptions(config, train, inputs), row, step));
  if (!saved || !train.partial.one_step_off) return absl::OkStatus();
  return CheckWholeGroups(*saved, train.train_batch_size);
}

ResumeOptions MakeResumeOptions(const v1::Config& config,
                                const TrainOptions& train,
                                const RunInputs& inputs,
                                std::string launch_id) {
  const auto fits = [&](const std::string& checkpoint, int64_t step) -> absl::Status {
    TANDEM_RETURN_IF_ERROR(CheckResumedAdapters(config, inputs.spec, checkpoint));
    return CheckCarriedGroups(config, train, inputs, checkpoint, step);
  };
  const auto pinned = [&]() -> absl::StatusOr<std::vector<PinnedInput>> {
    if (!train.inputs.empty()) return train.inputs;
    return PinInputs(config, inputs, RememberDigests::kNo);
  };
  return {.total_steps = train.total_steps,
          .launch_id = std::move(launch_id),
          .fits = fits,
          .inputs = pinned};
}

absl::StatusOr<OpenedRounds> OpenRounds(const v1::Config& config,
                                        const TrainOptions& train,
                                        const RunInputs& inputs,
                                        ResumePoint& resume) {
  const BufferOptions options = MakeBufferOptions(config, train, inputs);
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<RolloutBuffer> buffer,
                          RolloutBuffer::Open(train.run_dir + "/partial_pool", options));
  TANDEM_ASSIGN_OR_RETURN(const std::string identity, JournalIdentity(config, options));
  const std::string path = train.run_dir + "/partial_journal.jsonl";
  std::unique_ptr<RoundJournal> journal = RoundJournal::OpenUnread(path, identity);
  if (resume.set_aside != SetAside::kWholeRun) {
    TANDEM_ASSIGN_OR_RETURN(journal, RoundJournal::Open(path, identity));
  }
  if (!journal->note().empty()) resume.warnings.push_back(journal->note());
  RoundJournal* const opened = journal.get();
  return OpenedRounds{.runner = std::make_unique<RoundRunner>(train.partial, std::move(buffer),
                                                              std::move(journal), RealClock()),
                      .journal = opened};
}

}  // namespace tandem
