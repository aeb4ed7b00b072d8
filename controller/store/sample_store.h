// The samples of the current step: token arrays are in an append-only file and a small record of
// each sample in memory, so that the controller never holds the arrays of a complete step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/base/mutex.h"
#include "common/process/local_socket.h"
#include "common/types/sample.h"

namespace tandem {

// The scores of a response.
struct Outcome {
  double score = 0;   // of the reward function
  double reward = 0;  // input of the advantages: minus the KL penalty with use_kl_in_reward
  double advantage = 0;
};

// Arrays that are appended after a sample's record: one float per response token.
enum class TokenArray {
  kReference,     // log-probs under the reference policy
  kRecomputed,    // log-probs of the sampling policy, by the trainers
  kSumPiSquared,  // sum over the vocabulary of squared probabilities, by the trainers
  kAdvantages,    // only where they differ between tokens
  kIsWeights,     // Sample::is_weights
  kMask,          // Sample::mask
  kTraining       // log-probs of the training pass that a failed run ends with, by the trainers
};
inline constexpr size_t kTokenArrays = 7;

// Offsets in the step's file by TokenArray; -1: the array was not stored.
struct TokenArrayOffsets {
  std::array<int64_t, kTokenArrays> offsets{-1, -1, -1, -1, -1, -1, -1};
  int64_t& of(TokenArray array) { return offsets[static_cast<size_t>(array)]; }
  int64_t of(TokenArray array) const { return offsets[static_cast<size_t>(array)]; }
};

// The facts about a sample that are known without reading its arrays.
struct SampleMeta {
  uint64_t sample_id = 0;
  int64_t group = 0;
  int64_t index = 0;
  int64_t prompt_tokens = 0;
  int64_t response_tokens = 0;
  int64_t trained_tokens = 0;  // response tokens that TokenArray::kMask keeps
  FinishReason finish_reason = FinishReason::kNone;
  bool off_support = false;
  bool has_log_probs = true;   // the rollout returned log-probs
  int64_t weight_version = 0;  // of the first response token, the oldest
  int64_t newest_version = 0;  // of the last response token; both are 0 for an empty response
  int64_t mini_batch = 0;
  int rank = 0;  // of the trainer that trains on it
  Outcome outcome;
  int64_t offset = 0;                      // of the record in the step's file
  TokenArrayOffsets arrays;                // of arrays appended after the record
  std::vector<Segment> segments;           // Sample::segments
  std::vector<Segment> response_segments;  // common/types/response_tokens.h
  float temperature = 1;
  int64_t arrived_us = 0;  // since 1970, UTC; 0: unknown
};

// The weight versions that may have sampled the tokens of a sample.
enum class TokenVersions {
  kExactly,  // the requested version for all tokens
  kUpTo      // the requested version or older ones, in ascending order, as with partial rollout
};

// Thread-safe: samples arrive from rollouts while trainers read.
class SampleStore {
 public:
  // Writes to `dir`/step_NNNNNN.samples and creates the folder. `keep`: the number of steps whose
  // files are kept, including the newest; 0: all. A file has 4 bytes per prompt token and 16 per
  // response token (12 without log-probs), and 4 more for each TokenArray.
  static absl::StatusOr<std::unique_ptr<SampleStore>> Open(const std::string& dir, int64_t keep);

  // Creates the step's file, drops the previous step from memory, and removes files beyond `keep`
  // as well as those of later steps, which a repeated step or a new run writes again. Errors by
  // IoErrorCode.
  absl::Status BeginStep(int64_t step);
  // The step of the newest BeginStep; -1 before the first.
  int64_t step() const;

  // AlreadyExists: the id is in use. InvalidArgument: the lengths of the arrays do not fit.
  // DataLoss: another version than `version` sampled a token or, with kUpTo, a later version did,
  // or an earlier one than that of the token before it. ResourceExhausted: disk full.
  // `arrived_us`: SampleMeta::arrived_us.
  absl::Status Put(const Sample& sample,
                   int64_t version,
                   TokenVersions allowed = TokenVersions::kExactly,
                   int64_t arrived_us = 0);
  // Ends the step's file with SamplesEnd of `index` (batch_file.h), if it is not empty and the file
  // has none, and retries the writes of this step that a full or failing disk has refused. Put and
  // PutArray keep refused bytes in memory instead of failing, because a step must not stop in the
  // middle. An error is marked as a disk's refusal (disk_refusal.h) and loses nothing.
  absl::Status Flush(const std::string& index = "");
  // The bytes that are kept in memory.
  int64_t held_back_bytes() const;

  // The facts of all samples, in order of sample id.
  std::vector<SampleMeta> Metas() const;
  // Removes samples from the step and returns their facts; their arrays stay in the file. Unknown
  // ids are ignored.
  std::vector<SampleMeta> Drop(const std::vector<uint64_t>& sample_ids);
  // Restores samples that Drop has removed in this step.
  void TakeBack(const std::vector<SampleMeta>& metas);
  void SetOutcome(uint64_t sample_id, const Outcome& outcome);
  void Assign(uint64_t sample_id, int64_t mini_batch, int rank);

  // Idempotent. NotFound: other step or unknown sample; InvalidArgument: wrong length;
  // FailedPrecondition: the file has its index, behind which nobody would find the array.
  absl::Status PutArray(int64_t step,
                        TokenArray array,
                        uint64_t sample_id,
                        const std::vector<float>& values);

  // The sample ids of one rank and mini-batch (-1: all), ascending. NotFound: not the current step.
  absl::StatusOr<std::vector<uint64_t>> Assigned(int64_t step, int64_t mini_batch, int rank) const;

  // The sample with all arrays that a trainer reads, its reward, and its advantages (kAdvantages,
  // else the scalar for every response token). NotFound: unknown id; DataLoss: the file was
  // truncated.
  absl::StatusOr<Sample> Read(uint64_t sample_id) const;
  // One array, [response tokens]; empty if it was not stored.
  absl::StatusOr<std::vector<float>> ReadArray(TokenArray array, uint64_t sample_id) const;

 private:
  SampleStore(std::string dir, int64_t keep) : dir_(std::move(dir)), keep_(keep) {}
  void Prune() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mutex_);
  absl::StatusOr<int64_t> Append(const std::string& bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mutex_);
  absl::StatusOr<std::vector<float>> ReadFloats(int64_t offset, int64_t count) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mutex_);
  absl::Status ReadAt(int64_t offset, void* data, int64_t bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(step_mutex_);

  const std::string dir_;
  const int64_t keep_;
  mutable Mutex step_mutex_;
  // State of the step in progress.
  UniqueFd fd_ ABSL_GUARDED_BY(step_mutex_);
  std::string path_ ABSL_GUARDED_BY(step_mutex_);
  int64_t step_ ABSL_GUARDED_BY(step_mutex_) = -1;
  int64_t end_ ABSL_GUARDED_BY(step_mutex_) = 0;
  bool has_index_ ABSL_GUARDED_BY(step_mutex_) = false;
  // The end of the file that the disk has refused: records from held_back_begin_ on.
  std::string held_back_ ABSL_GUARDED_BY(step_mutex_);
  int64_t held_back_begin_ ABSL_GUARDED_BY(step_mutex_) = 0;
  std::map<uint64_t, SampleMeta> metas_ ABSL_GUARDED_BY(step_mutex_);
};

}  // namespace tandem
