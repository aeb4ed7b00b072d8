#include "controller/open_partial.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "common/base/status_macros.h"

namespace tandem {

namespace {

// Everything that samples and weights of the run depend on, so that the journal of cuts is that of
// an equal run or none.
absl::StatusOr<std::string> CutsOf(const v1::Config& config, const PoolOptions& pool) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<ConfigChange> settings,
                          DiffConfig(ConfigToYaml(v1::Config()), config));
  return fmt::format("{}; {}", CutsIdentity(pool), fmt::join(ChangesOfTheRun(settings), "; "));
}

}  // namespace

absl::StatusOr<std::unique_ptr<PartialRollout>> OpenPartial(const v1::Config& config,
                                                            const TrainOptions& train,
                                                            const RunInputs& inputs,
                                                            ResumePoint& resume) {
  if (config.weight_sync().check_only()) return nullptr;
  if (!train.partial.enabled) {
    if (!resume.checkpoint.empty()) TANDEM_RETURN_IF_ERROR(CheckNoPool(resume.checkpoint));
    return nullptr;
  }
  const PoolOptions options{.tokenizer_digest = inputs.tokenizer->digest(),
                            .vocab_limit = inputs.tokenizer->vocab_size(),
                            .samples_per_prompt = train.samples_per_prompt,
                            .sampling = train.sampling,
                            .log_probs = config.rollout().calculate_log_probs()};
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<SamplePool> pool,
                          SamplePool::Open(train.run_dir + "/partial_pool", options));
  // Here first, so that what does not fit is refused before anything is started or changed.
  if (!resume.checkpoint.empty()) {
    const auto row = [&inputs](uint64_t data_row) { return inputs.prompts->Row(data_row); };
    TANDEM_RETURN_IF_ERROR(pool->Load(resume.checkpoint, row, resume.step));
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string cuts, CutsOf(config, options));
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<CutJournal> journal,
                          CutJournal::Open(train.run_dir + "/partial_journal.jsonl", cuts));
  if (resume.anew) TANDEM_RETURN_IF_ERROR(journal->Clear());
  if (!journal->note().empty()) resume.warnings.push_back(journal->note());
  return std::make_unique<PartialRollout>(train.partial, std::move(pool), std::move(journal),
                                          RealClock());
}

}  // namespace tandem
