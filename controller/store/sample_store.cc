#include "controller/store/sample_store.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include <fcntl.h>

#include "common/base/disk_refusal.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/types/response_tokens.h"
#include "controller/store/batch_file.h"
#include "controller/store/run_file.h"

namespace tandem {
namespace {

constexpr const char* kArrayNames[kTokenArrays] = {
    "reference log-probs", "recomputed log-probs", "sums of squared probabilities", "advantages",
    "importance weights",  "mask values",          "log-probs of the training pass"};

template <typename T>
void AppendArray(std::string& bytes, const std::vector<T>& values) {
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

absl::Status CheckLengths(const Sample& sample) {
  const auto responses = static_cast<size_t>(sample.response_tokens());
  if (sample.prompt_tokens < 1 || sample.response_tokens() < 0 ||
      (!sample.log_probs.empty() && sample.log_probs.size() != responses) ||
      sample.versions.size() != responses) {
    return InvalidArgument(
        "sample {:#x}: {} tokens, {} of the prompt, {} log-probs and {} versions do not fit",
        sample.sample_id, sample.tokens.size(), sample.prompt_tokens, sample.log_probs.size(),
        sample.versions.size());
  }
  return absl::OkStatus();
}

// The rollout is expected to refuse other versions itself; this check holds even if log-probs are
// not compared.
absl::Status CheckVersions(const Sample& sample, int64_t version, TokenVersions allowed) {
  const bool older = allowed == TokenVersions::kUpTo;
  for (size_t i = 0; i < sample.versions.size(); ++i) {
    const int64_t sampled = sample.versions[i];
    if (sampled != version && !(older && sampled < version)) {
      return MakeStatus(absl::StatusCode::kDataLoss,
                        "sample {:#x}: weights of version {} sampled response token {}, version {} "
                        "{}was asked for; this is a defect of the rollout",
                        sample.sample_id, sampled, i, version, older ? "or an older one " : "");
    }
    if (i > 0 && sampled < sample.versions[i - 1]) {
      return MakeStatus(absl::StatusCode::kDataLoss,
                        "sample {:#x}: weights of version {} sampled response token {}, after a "
                        "token of version {}; a response continues under the same weights or newer "
                        "ones: this is a defect of the rollout, or its tokens were mixed up",
                        sample.sample_id, sampled, i, sample.versions[i - 1]);
    }
  }
  return absl::OkStatus();
}

// `mask` as in Sample.
int64_t CountTrained(const std::vector<Segment>& segments,
                     const ResponseWindow& window,
                     const std::vector<float>& mask) {
  const std::vector<float> counted = CountedTokens(segments, window, mask);
  return std::count(counted.begin(), counted.end(), 1.0f);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SampleStore>> SampleStore::Open(const std::string& dir,
                                                               int64_t keep) {
  TANDEM_RETURN_IF_ERROR(MakeFolder(dir));
  return std::unique_ptr<SampleStore>(new SampleStore(dir, keep));
}

absl::Status SampleStore::BeginStep(int64_t step) {
  const MutexLock lock(step_mutex_);
  fd_.Reset();
  metas_.clear();
  held_back_.clear();
  step_ = step;
  end_ = 0;
  has_index_ = false;
  path_ = fmt::format("{}/step_{:06}.samples", dir_, step);
  fd_.Reset(open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd_.valid()) return RunFileError(path_, "opening", errno);
  Prune();
  return absl::OkStatus();
}

int64_t SampleStore::step() const {
  const MutexLock lock(step_mutex_);
  return step_;
}

void SampleStore::Prune() const {
  if (keep_ <= 0) return;
  std::error_code error;
  std::vector<std::filesystem::path> doomed;
  for (const auto& entry : std::filesystem::directory_iterator(dir_, error)) {
    const std::string name = entry.path().filename().string();
    int64_t step = 0;
    if (!name.ends_with(".samples")) continue;
    if (std::sscanf(name.c_str(), "step_%" SCNd64, &step) != 1) continue;
    if (step <= step_ - keep_ || step > step_) doomed.push_back(entry.path());
  }
  for (const auto& path : doomed) std::filesystem::remove(path, error);
}

absl::Status SampleStore::Put(const Sample& sample,
                              int64_t version,
                              TokenVersions allowed,
                              int64_t arrived_us) {
  TANDEM_RETURN_IF_ERROR(CheckLengths(sample));
  TANDEM_RETURN_IF_ERROR(CheckVersions(sample, version, allowed));
  // A record has tokens (i32), log-probs (f32, if there are any) and versions (i64), in native byte
  // order; the lengths are in SampleMeta.
  std::string bytes;
  AppendArray(bytes, sample.tokens);
  AppendArray(bytes, sample.log_probs);
  AppendArray(bytes, sample.versions);
  const MutexLock lock(step_mutex_);
  if (metas_.contains(sample.sample_id)) {
    return MakeStatus(absl::StatusCode::kAlreadyExists, "sample {:#x} was returned twice",
                      sample.sample_id);
  }
  TANDEM_ASSIGN_OR_RETURN(const int64_t offset, Append(bytes));
  metas_[sample.sample_id] = {
      .sample_id = sample.sample_id,
      .group = sample.group,
      .index = sample.index,
      .prompt_tokens = sample.prompt_tokens,
      .response_tokens = sample.response_tokens(),
      .trained_tokens = CountTrained(sample.segments, WindowOf(sample), {}),
      .finish_reason = sample.finish_reason,
      .off_support = sample.off_support,
      .has_log_probs = !sample.log_probs.empty(),
      .weight_version = sample.versions.empty() ? 0 : sample.versions.front(),
      .newest_version = sample.versions.empty() ? 0 : sample.versions.back(),
      .offset = offset,
      .segments = sample.segments,
      .response_segments = ResponseSegments(sample),
      .temperature = sample.temperature,
      .arrived_us = arrived_us};
  return absl::OkStatus();
}

std::vector<SampleMeta> SampleStore::Metas() const {
  const MutexLock lock(step_mutex_);
  std::vector<SampleMeta> metas;
  metas.reserve(metas_.size());
  for (const auto& [id, meta] : metas_) metas.push_back(meta);
  return metas;
}

std::vector<SampleMeta> SampleStore::Drop(const std::vector<uint64_t>& sample_ids) {
  const MutexLock lock(step_mutex_);
  std::vector<SampleMeta> dropped;
  for (const uint64_t id : sample_ids) {
    auto node = metas_.extract(id);
    if (!node.empty()) dropped.push_back(std::move(node.mapped()));
  }
  return dropped;
}

void SampleStore::TakeBack(const std::vector<SampleMeta>& metas) {
  const MutexLock lock(step_mutex_);
  for (const SampleMeta& meta : metas) metas_.emplace(meta.sample_id, meta);
}

void SampleStore::SetOutcome(uint64_t sample_id, const Outcome& outcome) {
  const MutexLock lock(step_mutex_);
  const auto found = metas_.find(sample_id);
  if (found == metas_.end()) return;
  found->second.outcome = outcome;
}

void SampleStore::Assign(uint64_t sample_id, int64_t mini_batch, int rank) {
  const MutexLock lock(step_mutex_);
  const auto found = metas_.find(sample_id);
  if (found == metas_.end()) return;
  found->second.mini_batch = mini_batch;
  found->second.rank = rank;
}

absl::Status SampleStore::PutArray(int64_t step,
                                   TokenArray array,
                                   uint64_t sample_id,
                                   const std::vector<float>& values) {
  const MutexLock lock(step_mutex_);
  const auto found = metas_.find(sample_id);
  if (step != step_ || found == metas_.end()) {
    return MakeStatus(absl::StatusCode::kNotFound, "step {} has no sample {:#x}", step, sample_id);
  }
  if (has_index_) {
    return FailedPrecondition(
        "{} of sample {:#x} come too late: the file of step {} is complete and ends with its index",
        kArrayNames[static_cast<size_t>(array)], sample_id, step);
  }
  SampleMeta& meta = found->second;
  if (static_cast<int64_t>(values.size()) != meta.response_tokens) {
    return InvalidArgument("sample {:#x}: {} {} for {} response tokens", sample_id, values.size(),
                           kArrayNames[static_cast<size_t>(array)], meta.response_tokens);
  }
  std::string bytes;
  AppendArray(bytes, values);
  TANDEM_ASSIGN_OR_RETURN(const int64_t offset, Append(bytes));
  meta.arrays.of(array) = offset;
  if (array == TokenArray::kMask) {
    meta.trained_tokens =
        CountTrained(meta.segments, {meta.prompt_tokens, meta.response_tokens}, values);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint64_t>> SampleStore::Assigned(int64_t step,
                                                            int64_t mini_batch,
                                                            int rank) const {
  const MutexLock lock(step_mutex_);
  if (step != step_) {
    return MakeStatus(absl::StatusCode::kNotFound, "the samples of step {} are gone: step {} is on",
                      step, step_);
  }
  std::vector<uint64_t> ids;
  for (const auto& [id, meta] : metas_) {
    if (meta.rank == rank && (mini_batch < 0 || meta.mini_batch == mini_batch)) ids.push_back(id);
  }
  return ids;
}

absl::StatusOr<Sample> SampleStore::Read(uint64_t sample_id) const {
  const MutexLock lock(step_mutex_);
  const auto found = metas_.find(sample_id);
  if (found == metas_.end()) {
    return MakeStatus(absl::StatusCode::kNotFound, "no sample {:#x} in step {}", sample_id, step_);
  }
  const SampleMeta& meta = found->second;
  Sample sample{.sample_id = sample_id,
                .group = meta.group,
                .index = meta.index,
                .prompt_tokens = meta.prompt_tokens,
                .segments = meta.segments,
                .finish_reason = meta.finish_reason,
                .temperature = meta.temperature,
                .off_support = meta.off_support,
                .reward = meta.outcome.reward};
  const auto responses = static_cast<size_t>(meta.response_tokens);
  const size_t tokens = static_cast<size_t>(meta.prompt_tokens) + responses;
  sample.tokens.resize(tokens);
  if (meta.has_log_probs) sample.log_probs.resize(responses);
  sample.versions.resize(responses);
  sample.advantages.assign(responses, static_cast<float>(meta.outcome.advantage));
  int64_t at = meta.offset;
  TANDEM_RETURN_IF_ERROR(ReadAt(at, sample.tokens.data(), static_cast<int64_t>(tokens * 4)));
  at += static_cast<int64_t>(tokens * 4);
  const auto log_prob_bytes = static_cast<int64_t>(sample.log_probs.size() * 4);
  TANDEM_RETURN_IF_ERROR(ReadAt(at, sample.log_probs.data(), log_prob_bytes));
  at += log_prob_bytes;
  TANDEM_RETURN_IF_ERROR(ReadAt(at, sample.versions.data(), meta.response_tokens * 8));
  std::vector<float>* const arrays[] = {
      &sample.ref_log_probs, &sample.old_log_probs, nullptr, &sample.advantages,
      &sample.is_weights,    &sample.mask,          nullptr};
  static_assert(std::size(arrays) == kTokenArrays);
  for (size_t i = 0; i < kTokenArrays; ++i) {
    const int64_t offset = meta.arrays.offsets[i];
    if (arrays[i] == nullptr || offset < 0) continue;
    TANDEM_ASSIGN_OR_RETURN(*arrays[i], ReadFloats(offset, meta.response_tokens));
  }
  return sample;
}

absl::StatusOr<std::vector<float>> SampleStore::ReadArray(TokenArray array,
                                                          uint64_t sample_id) const {
  const MutexLock lock(step_mutex_);
  const auto found = metas_.find(sample_id);
  if (found == metas_.end()) return absl::NotFoundError("no such sample");
  const SampleMeta& meta = found->second;
  return ReadFloats(meta.arrays.of(array), meta.response_tokens);
}

absl::StatusOr<int64_t> SampleStore::Append(const std::string& bytes) {
  if (!fd_.valid()) return FailedPrecondition("no step has begun");
  const absl::Status written =
      held_back_.empty() ? WriteRunFile(fd_.get(), path_, bytes, end_) : absl::OkStatus();
  if (!written.ok() && !IsDiskRefused(written)) return written;
  if (!written.ok()) {
    held_back_begin_ = end_;
    LogWarn("{}; the samples are kept in memory until the end of the step",
            std::string(written.message()));
  }
  if (!written.ok() || !held_back_.empty()) held_back_ += bytes;
  return std::exchange(end_, end_ + static_cast<int64_t>(bytes.size()));
}

absl::Status SampleStore::Flush(const std::string& index) {
  const MutexLock lock(step_mutex_);
  if (!index.empty() && !has_index_) {
    TANDEM_RETURN_IF_ERROR(Append(SamplesEnd(index, static_cast<uint64_t>(end_))).status());
    has_index_ = true;
  }
  if (held_back_.empty()) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(
      WithDiskRefused(WriteRunFile(fd_.get(), path_, held_back_, held_back_begin_)));
  held_back_.clear();
  return absl::OkStatus();
}

int64_t SampleStore::held_back_bytes() const {
  const MutexLock lock(step_mutex_);
  return static_cast<int64_t>(held_back_.size());
}

absl::StatusOr<std::vector<float>> SampleStore::ReadFloats(int64_t offset, int64_t count) const {
  std::vector<float> values;
  if (offset < 0) return values;
  values.resize(static_cast<size_t>(count));
  TANDEM_RETURN_IF_ERROR(ReadAt(offset, values.data(), count * 4));
  return values;
}

absl::Status SampleStore::ReadAt(int64_t offset, void* data, int64_t bytes) const {
  if (!held_back_.empty() && offset >= held_back_begin_) {
    const auto begin = static_cast<size_t>(offset - held_back_begin_);
    if (begin + static_cast<size_t>(bytes) > held_back_.size()) {
      return Internal("{}: {} bytes at {} were not stored", path_, bytes, offset);
    }
    std::memcpy(data, held_back_.data() + begin, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  return ReadRunFile(fd_.get(), path_, {static_cast<char*>(data), static_cast<size_t>(bytes)},
                     offset);
}

}  // namespace tandem
