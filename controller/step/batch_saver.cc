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

using Records = std::map<uint64_t, SampleRecord>;

// What is known of a sample beside Sample.
void AddFacts(const SampleMeta& meta, const Records& records, SavedSample& saved) {
  saved.trained_tokens = meta.trained_tokens;
  saved.mini_batch = meta.mini_batch;
  saved.rank = meta.rank;
  saved.score = meta.outcome.score;
  saved.advantage = meta.outcome.advantage;
  const auto record = records.find(meta.sample_id);
  if (record != records.end()) saved.reward_terms = record->second.reward_terms;
}

absl::StatusOr<SavedSample> Gather(const SampleStore& samples,
                                   const SampleMeta& meta,
                                   const Records& records) {
  TANDEM_ASSIGN_OR_RETURN(Sample sample, samples.Read(meta.sample_id));
  SavedSample saved{std::move(sample)};
  TANDEM_ASSIGN_OR_RETURN(saved.sum_pi_squared,
                          samples.ReadArray(TokenArray::kSumPiSquared, meta.sample_id));
  TANDEM_ASSIGN_OR_RETURN(saved.training_log_probs,
                          samples.ReadArray(TokenArray::kTraining, meta.sample_id));
  AddFacts(meta, records, saved);
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

std::vector<SavedMiniBatch> ToSaved(const std::vector<MiniBatch>& plan) {
  std::vector<SavedMiniBatch> saved;
  for (const MiniBatch& mini : plan) {
    saved.push_back(
        {.index = mini.index, .samples = mini.samples, .trained_tokens = mini.trained_tokens});
  }
  return saved;
}

// `status` with its payloads, and a line below its message.
absl::Status WithLine(const absl::Status& status, const std::string& line) {
  absl::Status with(status.code(), std::string(status.message()) + "\n" + line);
  status.ForEachPayload(
      [&with](absl::string_view url, const absl::Cord& payload) { with.SetPayload(url, payload); });
  return with;
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
      [&] { return Save(path, ContentsOf(batch)); });
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
    AddFacts(meta, batch.records, saved);
    entries.push_back(std::move(entry));
  }
  SavedBatchInfo info = MakeInfo(batch);
  info.metrics.clear();  // they are in the records, and some of them are times
  return BatchHeaderToJson(info, entries);
}

std::string BatchSaver::SaveFailed(const StepBatch& batch, const std::string& failure) {
  Contents contents = ContentsOf(batch);
  contents.info.mini_batch = batch.mini_batch;
  return SaveFailure(std::move(contents), failure);
}

std::string BatchSaver::SaveFailure(Contents contents, const std::string& failure) const {
  contents.info.failure = failure;
  contents.info.checkpoint = checkpoint_;
  const std::string folder =
      fmt::format("{}/failed_steps/step_{}", options_.run_dir, contents.info.step);
  const absl::Status saved = SaveFailedTo(folder, contents);
  if (!saved.ok()) {
    return fmt::format("The step could not be saved: {}", std::string(saved.message()));
  }
  return fmt::format("The step is saved: tandemctl batch inspect {}/step{} shows it", folder,
                     kBatchSuffix);
}

absl::Status BatchSaver::SaveWith(const StepBatch& batch,
                                  const absl::Status& status,
                                  const std::string& what) {
  const std::string saved = SaveFailed(batch, std::string(status.message()));
  return WithLine(status, saved + (what.empty() ? "" : ", " + what));
}

absl::Status BatchSaver::SaveIfDataLoss(const StepBatch& batch, const absl::Status& status) {
  return absl::IsDataLoss(status) ? SaveWith(batch, status, "") : status;
}

absl::Status BatchSaver::SaveIfDataLoss(const StepBatch& batch,
                                        const UpcomingBatch& upcoming,
                                        const absl::Status& status) {
  if (!absl::IsDataLoss(status)) return status;
  return WithLine(status, SaveFailure(ContentsOf(batch, upcoming), std::string(status.message())));
}

absl::Status BatchSaver::Save(const std::string& path, const Contents& contents) {
  TANDEM_RETURN_IF_ERROR(MakeFolder(std::filesystem::path(path).parent_path()));
  TANDEM_ASSIGN_OR_RETURN(const auto writer, BatchWriter::Create(path));
  for (const SampleMeta& meta : contents.samples.Metas()) {
    TANDEM_ASSIGN_OR_RETURN(const SavedSample saved,
                            Gather(contents.samples, meta, contents.records));
    TANDEM_RETURN_IF_ERROR(writer->Add(saved));
  }
  return writer->Commit(contents.info);
}

absl::Status BatchSaver::SaveFailedTo(const std::string& folder, const Contents& contents) const {
  TANDEM_RETURN_IF_ERROR(Save(folder + "/step" + kBatchSuffix, contents));
  return WriteFileAtomically(folder + "/config.yaml", options_.config_yaml);
}

BatchSaver::Contents BatchSaver::ContentsOf(const StepBatch& batch) const {
  return {.samples = context_.samples, .records = batch.records, .info = MakeInfo(batch)};
}

BatchSaver::Contents BatchSaver::ContentsOf(const StepBatch& batch,
                                            const UpcomingBatch& upcoming) const {
  static const Records kNotRewarded;
  SavedBatchInfo info = MakeInfo(batch);
  info.step = upcoming.step;
  info.epoch = 0;
  info.metrics.clear();  // of the step in progress
  info.mini_batches = ToSaved(upcoming.plan);
  return {.samples = upcoming.samples, .records = kNotRewarded, .info = std::move(info)};
}

SavedBatchInfo BatchSaver::MakeInfo(const StepBatch& batch) const {
  return {.step = batch.step,
          .sampling_version = batch.version,
          .version = position_.version,
          .epoch = batch.epoch,
          .mini_batch = -1,
          .ranks = context_.pool.topology().trainers,
          .model_path = options_.model_path,
          .config_yaml = options_.config_yaml,
          .mini_batches = ToSaved(batch.plan),
          .metrics = batch.facts.trainer};
}

}  // namespace tandem
