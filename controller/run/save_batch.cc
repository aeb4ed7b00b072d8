#include "controller/run/save_batch.h"

#include <filesystem>
#include <utility>

#include "common/base/status.h"
#include "controller/store/batch_file.h"

namespace tandem {
namespace {

absl::StatusOr<SavedSample> Gather(const SampleStore& samples,
                                   const SampleMeta& meta,
                                   const StepBatch& batch) {
  TANDEM_ASSIGN_OR_RETURN(Sample sample, samples.Read(meta.sample_id));
  SavedSample saved{std::move(sample)};
  TANDEM_ASSIGN_OR_RETURN(saved.sum_pi_squared,
                          samples.ReadArray(TokenArray::kSumPiSquared, meta.sample_id));
  TANDEM_ASSIGN_OR_RETURN(saved.training_log_probs,
                          samples.ReadArray(TokenArray::kTraining, meta.sample_id));
  saved.trained_tokens = meta.trained_tokens;
  saved.mini_batch = meta.mini_batch;
  saved.rank = meta.rank;
  saved.score = meta.outcome.score;
  saved.advantage = meta.outcome.advantage;
  const auto record = batch.records.find(meta.sample_id);
  if (record != batch.records.end()) saved.reward_terms = record->second.reward_terms;
  return saved;
}

}  // namespace

SavedBatchInfo InfoOf(const StepBatch& batch) {
  SavedBatchInfo info{
      .step = batch.step, .epoch = batch.epoch, .mini_batch = -1, .metrics = batch.facts.trainer};
  for (const MiniBatch& mini : batch.plan) {
    info.mini_batches.push_back(
        {.index = mini.index, .samples = mini.samples, .trained_tokens = mini.trained_tokens});
  }
  return info;
}

absl::Status SaveBatch(const std::string& path,
                       const SavedBatchInfo& info,
                       const SampleStore& samples,
                       const StepBatch& batch) {
  TANDEM_RETURN_IF_ERROR(MakeFolder(std::filesystem::path(path).parent_path()));
  TANDEM_ASSIGN_OR_RETURN(const auto writer, BatchWriter::Create(path));
  for (const SampleMeta& meta : samples.Metas()) {
    TANDEM_ASSIGN_OR_RETURN(const SavedSample saved, Gather(samples, meta, batch));
    TANDEM_RETURN_IF_ERROR(writer->Add(saved));
  }
  return writer->Commit(info);
}

}  // namespace tandem
