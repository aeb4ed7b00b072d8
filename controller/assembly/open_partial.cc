#include "controller/assembly/open_partial.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "common/base/status_macros.h"
#include "controller/partial_rollout/buffer/resume_check.h"
#include "controller/plan/lora_checks.h"
#include "tandem/v1/config.pb.h"

namespace tandem {

namespace {

// Everything that samples and weights of the run depend on, so that the journal of cuts is that of
// an equal run or none.
absl::StatusOr<std::string> CutsOf(const v1::Config& config, const PoolOptions& pool) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<ConfigChange> settings,
                          DiffConfig(ConfigToYaml(v1::Config()), config));
  return fmt::format("{}; {}", CutsIdentity(pool), fmt::join(ChangesOfTheRun(settings), "; "));
}

PoolOptions PoolOptionsOf(const v1::Config& config,
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
  if (!train.partial.enabled) return CheckNoPool(checkpoint);
  const auto row = [&inputs](uint64_t data_row) { return inputs.prompts->Row(data_row); };
  return ReadFittingPool(checkpoint, PoolOptionsOf(config, train, inputs), row, step).status();
}

ResumeOptions ResumeOptionsOf(const v1::Config& config,
                              const TrainOptions& train,
                              const RunInputs& inputs,
                              std::string launch_id) {
  const auto fits = [&](const std::string& checkpoint, int64_t step) -> absl::Status {
    TANDEM_RETURN_IF_ERROR(CheckResumedAdapters(config, inputs.spec, checkpoint));
    return CheckCarriedGroups(config, train, inputs, checkpoint, step);
  };
  return {.total_steps = train.total_steps, .launch_id = std::move(launch_id), .fits = fits};
}

absl::StatusOr<std::unique_ptr<PartialRollout>> OpenPartial(const v1::Config& config,
                                                            const TrainOptions& train,
                                                            const RunInputs& inputs,
                                                            ResumePoint& resume) {
  if (config.weight_sync().check_only() || !train.partial.enabled) return nullptr;
  const PoolOptions options = PoolOptionsOf(config, train, inputs);
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<SamplePool> pool,
                          SamplePool::Open(train.run_dir + "/partial_pool", options));
  TANDEM_ASSIGN_OR_RETURN(const std::string cuts, CutsOf(config, options));
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<CutJournal> journal,
                          CutJournal::Open(train.run_dir + "/partial_journal.jsonl", cuts));
  if (resume.anew) TANDEM_RETURN_IF_ERROR(journal->Clear());
  if (!journal->note().empty()) resume.warnings.push_back(journal->note());
  return std::make_unique<PartialRollout>(train.partial, std::move(pool), std::move(journal),
                                          RealClock());
}

}  // namespace tandem
