#include "controller/open_partial.h"

#include <utility>

#include "common/base/status_macros.h"

namespace tandem {

namespace {

// What rounds are cut by, beside what the pool's settings say: with others the journal is another
// run's.
std::string CutsOf(const PartialOptions& partial, const PoolOptions& pool) {
  return fmt::format(
      "{}, {} groups a round, cap {}, until {} groups or {} s, {} versions, overlap {} of {}",
      CutsIdentity(pool), partial.groups_per_round, partial.cap, partial.until_groups,
      partial.round_seconds, partial.max_versions, partial.overlap, partial.max_staleness);
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
  TANDEM_ASSIGN_OR_RETURN(
      std::unique_ptr<CutJournal> journal,
      CutJournal::Open(train.run_dir + "/partial_journal.jsonl", CutsOf(train.partial, options)));
  if (!journal->note().empty()) resume.warnings.push_back(journal->note());
  return std::make_unique<PartialRollout>(train.partial, std::move(pool), std::move(journal),
                                          RealClock());
}

}  // namespace tandem
