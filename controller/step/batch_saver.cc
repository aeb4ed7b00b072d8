#include "controller/step/batch_saver.h"

#include <array>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "common/base/disk_refusal.h"
#include "common/base/status.h"
#include "common/formats/files.h"
#include "controller/store/batch_file.h"

namespace tandem {
namespace {

// What is known of a sample beside Sample.
void AddFacts(const SampleMeta& meta, const StepBatch& batch, SavedSample& saved) {
  saved.trained_tokens = meta.trained_tokens;
  saved.mini_batch = meta.mini_batch;
  saved.rank = meta.rank;
  saved.score = meta.outcome.score;
  saved.advantage = meta.outcome.advantage;
  const auto record = batch.records.find(meta.sample_id);
  if (record != batch.records.end()) saved.reward_terms = record->second.reward_terms;
}

absl::StatusOr<SavedSample> Gather(const SampleStore& samples,
                                   const SampleMeta& meta,
                                   const StepBatch& batch) {
  TANDEM_ASSIGN_OR_RETURN(Sample sample, samples.Read(meta.sample_id));
  SavedSample saved{std::move(sample)};
  TANDEM_ASSIGN_OR_RETURN(saved.sum_pi_squared,
                          samples.ReadArray(TokenArray::kSumPiSquared, meta.sample_id));
  TANDEM_ASSIGN_OR_RETURN(saved.training_log_probs,
                          samples.ReadArray(TokenArray::kTraining, meta.sample_id));
  AddFacts(meta, batch, saved);
  return saved;
}

// By TokenArray, the names of kSavedArrays.
constexpr std::array<const char*, kTokenArrays> kIndexNames = {
    "ref_log_probs", "old_log_probs", "sum_pi_squared",    "advantages",
    "is_weights",    "mask",          "training_log_probs"};

// Where SampleStore has put a sample's arrays: record, then appended ones.
std::map<std::string, BatchPlace> PlacesOf(const SampleMeta& meta) {
  std::map<std::string, BatchPlace> places;
  auto at = static_cast<uint64_t>(meta.offset);
  const auto tokens = static_cast<uint64_t>(meta.prompt_tokens + meta.response_tokens);
  const auto responses = static_cast<uint64_t>(meta.response_tokens);
  places[kBatchTokens] = {.offset = at, .count = tokens};
  at += tokens * sizeof(int32_t);
  if (meta.has_log_probs) {
    places["log_probs"] = {.offset = at, .count = responses};
    at += responses * sizeof(float);
  }
  places[kBatchVersions] = {.offset = at, .count = responses};
  for (size_t i = 0; i < kTokenArrays; ++i) {
    const int64_t offset = meta.arrays.offsets[i];
    if (offset < 0) continue;
    places[kIndexNames[i]] = {.offset = static_cast<uint64_t>(offset), .count = responses};
  }
  return places;
}

}  // namespace

absl::Status BatchSaver::SaveDue(const StepBatch& batch) {
  if (options_.save_batch_freq <= 0 || batch.step % options_.save_batch_freq != 0) {
    return absl::OkStatus();
  }
  const std::string path =
      fmt::format("{}/batches/step_{}{}", options_.run_dir, batch.step, kBatchSuffix);
  const absl::Status saved = context_.disk.Until(
      {.what = fmt::format("the batch of step {}", batch.step), .folder = options_.run_dir},
      [&] { return Save(path, MakeInfo(batch), batch); });
  if (saved.ok() || (absl::IsDataLoss(saved) && !IsDiskRefused(saved))) return saved;
  context_.progress.OnMessage(
      fmt::format("step {}: its batch is not saved: {}", batch.step, std::string(saved.message())));
  return absl::OkStatus();
}

std::string BatchSaver::SamplesIndex(const StepBatch& batch) const {
  std::vector<BatchEntry> entries;
  for (const SampleMeta& meta : context_.samples.Metas()) {
    BatchEntry entry{.arrays = PlacesOf(meta)};
    SavedSample& saved = entry.meta;
    saved.sample_id = meta.sample_id;
    saved.group = meta.group;
    saved.index = meta.index;
    saved.prompt_tokens = meta.prompt_tokens;
    saved.segments = meta.segments;
    saved.finish_reason = meta.finish_reason;
    saved.temperature = meta.temperature;
    saved.off_support = meta.off_support;
    saved.reward = meta.outcome.reward;
    AddFacts(meta, batch, saved);
    entries.push_back(std::move(entry));
  }
  SavedBatchInfo info = MakeInfo(batch);
  info.metrics.clear();  // they are in the records, and some of them are times
  return BatchHeaderToJson(info, entries);
}

std::string BatchSaver::SaveFailed(const StepBatch& batch, const std::string& failure) {
  const std::string folder = fmt::format("{}/failed_steps/step_{}", options_.run_dir, batch.step);
  const absl::Status saved = SaveFailedTo(folder, batch, failure);
  if (!saved.ok()) {
    return fmt::format("The step could not be saved: {}", std::string(saved.message()));
  }
  return fmt::format("The step is saved: tandemctl batch inspect {}/step{} shows it", folder,
                     kBatchSuffix);
}

absl::Status BatchSaver::SaveWith(const StepBatch& batch,
                                  const absl::Status& status,
                                  const std::string& what) {
  const std::string failure(status.message());
  const std::string beside = what.empty() ? "" : ", " + what;
  absl::Status ended(status.code(), failure + "\n" + SaveFailed(batch, failure) + beside);
  status.ForEachPayload([&ended](absl::string_view url, const absl::Cord& payload) {
    ended.SetPayload(url, payload);
  });
  return ended;
}

absl::Status BatchSaver::SaveIfDataLoss(const StepBatch& batch, const absl::Status& status) {
  return absl::IsDataLoss(status) ? SaveWith(batch, status, "") : status;
}

absl::Status BatchSaver::Save(const std::string& path,
                              const SavedBatchInfo& info,
                              const StepBatch& batch) const {
  TANDEM_RETURN_IF_ERROR(MakeFolder(std::filesystem::path(path).parent_path()));
  TANDEM_ASSIGN_OR_RETURN(const auto writer, BatchWriter::Create(path));
  for (const SampleMeta& meta : context_.samples.Metas()) {
    TANDEM_ASSIGN_OR_RETURN(const SavedSample saved, Gather(context_.samples, meta, batch));
    TANDEM_RETURN_IF_ERROR(writer->Add(saved));
  }
  return writer->Commit(info);
}

absl::Status BatchSaver::SaveFailedTo(const std::string& folder,
                                      const StepBatch& batch,
                                      const std::string& failure) const {
  SavedBatchInfo info = MakeInfo(batch);
  info.failure = failure;
  info.mini_batch = batch.mini_batch;
  info.checkpoint = checkpoint_;
  TANDEM_RETURN_IF_ERROR(Save(folder + "/step" + kBatchSuffix, info, batch));
  return WriteFileAtomically(folder + "/config.yaml", options_.config_yaml);
}

SavedBatchInfo BatchSaver::MakeInfo(const StepBatch& batch) const {
  SavedBatchInfo info{.step = batch.step,
                      .sampling_version = batch.version,
                      .version = position_.version,
                      .epoch = batch.epoch,
                      .mini_batch = -1,
                      .ranks = context_.pool.topology().trainers,
                      .model_path = options_.model_path,
                      .config_yaml = options_.config_yaml,
                      .metrics = batch.facts.trainer};
  for (const MiniBatch& mini : batch.plan) {
    info.mini_batches.push_back(
        {.index = mini.index, .samples = mini.samples, .trained_tokens = mini.trained_tokens});
  }
  return info;
}

}  // namespace tandem
