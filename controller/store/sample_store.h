// The samples of the current step: token arrays in an append-only file, a small record of each in
// memory, so that the controller never holds a whole step's arrays.
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
#include "common/types/sample.h"

namespace tandem {

// What a response is worth.
struct Outcome {
  double score = 0;   // the reward function's
  double reward = 0;  // what advantages are made of: less the KL penalty with use_kl_in_reward
  double advantage = 0;
};

// What is put behind a sample's record: floats, one per response token each.
enum class TokenArray {
  kReference,     // log-probs under the reference policy
  kRecomputed,    // log-probs of the sampling policy, by the trainers
  kSumPiSquared,  // sum over the vocabulary of squared probabilities, by the trainers
  kAdvantages,    // where they differ between tokens
  kIsWeights,     // Sample::is_weights
  kMask,          // Sample::mask
  kTraining       // log-probs of a training pass that the run ends with, by the trainers
};
inline constexpr size_t kTokenArrays = 7;

// Offset in the step's file by TokenArray; -1: not put.
struct TokenArrayOffsets {
  std::array<int64_t, kTokenArrays> offsets{-1, -1, -1, -1, -1, -1, -1};
  int64_t& of(TokenArray array) { return offsets[static_cast<size_t>(array)]; }
  int64_t of(TokenArray array) const { return offsets[static_cast<size_t>(array)]; }
};

// What is known of a sample without reading its arrays.
struct SampleMeta {
  uint64_t sample_id = 0;
  int64_t group = 0;
  int64_t index = 0;
  int64_t prompt_tokens = 0;
  int64_t response_tokens = 0;
  int64_t trained_tokens = 0;  // of the response: those that TokenArray::kMask leaves
  FinishReason finish_reason = FinishReason::kNone;
  bool off_support = false;
  bool log_probs = true;       // came with the tokens
  int64_t weight_version = 0;  // of the first response token: the oldest
  int64_t newest_version = 0;  // of the last response token; both 0 without one
  int64_t mini_batch = 0;
  int rank = 0;  // of the trainer that trains it
  Outcome outcome;
  int64_t offset = 0;                      // of the record in the step's file
  TokenArrayOffsets arrays;                // of what was put behind the record
  std::vector<Segment> segments;           // Sample::segments
  std::vector<Segment> response_segments;  // common/types/response_tokens.h
  float temperature = 1;
};

// Which weights may have sampled the tokens of a sample.
enum class TokenVersions {
  kExactly,  // those of the version that is asked for, all
  kUpTo      // older ones, too, as a partial rollout leaves them: versions that never fall
};

// Thread-safe: rollouts' samples arrive while trainers' streams read.
class SampleStore {
 public:
  // Files go to `dir`/step_NNNNNN.samples. The folder is made. `keep`: steps whose files stay, the
  // newest among them; 0: all. A file has 4 bytes per prompt token and 16 per response token (12
  // without log-probs), and 4 more for each TokenArray that is put.
  static absl::StatusOr<std::unique_ptr<SampleStore>> Open(const std::string& dir, int64_t keep);
  ~SampleStore();

  // Starts a step's file anew, forgets the step before and removes files beyond `keep`, those of
  // later steps (which a replay or a new run makes again) included. Errors by IoErrorCode.
  absl::Status BeginStep(int64_t step);

  // AlreadyExists: that id was put before. InvalidArgument: arrays whose lengths do not fit.
  // DataLoss: a token that weights of another version than `version` sampled, or, with kUpTo, of a
  // later one, or of an earlier one than the token before it. ResourceExhausted: disk full.
  absl::Status Put(const Sample& sample,
                   int64_t version,
                   TokenVersions allowed = TokenVersions::kExactly);
  bool Contains(uint64_t sample_id) const;

  // In order of sample id.
  std::vector<SampleMeta> Metas() const;
  // They leave the step: from now on they are unknown here, though their arrays stay in the file.
  // Ids that are unknown already do not matter. Returns what was known of the others.
  std::vector<SampleMeta> Drop(const std::vector<uint64_t>& sample_ids);
  // What Drop returned in this step belongs to it again.
  void TakeBack(const std::vector<SampleMeta>& metas);
  void SetOutcome(uint64_t sample_id, const Outcome& outcome);
  void Assign(uint64_t sample_id, int64_t mini_batch, int rank);

  // Idempotent. NotFound: other step or unknown sample; InvalidArgument: wrong length.
  absl::Status PutArray(int64_t step,
                        TokenArray array,
                        uint64_t sample_id,
                        const std::vector<float>& values);

  // Ids of one rank and mini-batch (-1: all), ascending. NotFound: not the current step.
  absl::StatusOr<std::vector<uint64_t>> Assigned(int64_t step, int64_t mini_batch, int rank) const;

  // The whole sample, with reward, advantages (kAdvantages, else the scalar on every response
  // token) and whatever else a trainer reads. NotFound: unknown id; DataLoss: the file
  // was cut.
  absl::StatusOr<Sample> Read(uint64_t sample_id) const;
  // One array alone, [response tokens]; empty if it was not put.
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
  // All of the step under way.
  int fd_ ABSL_GUARDED_BY(step_mutex_) = -1;
  std::string path_ ABSL_GUARDED_BY(step_mutex_);
  int64_t step_ ABSL_GUARDED_BY(step_mutex_) = -1;
  int64_t end_ ABSL_GUARDED_BY(step_mutex_) = 0;
  std::map<uint64_t, SampleMeta> metas_ ABSL_GUARDED_BY(step_mutex_);
};

}  // namespace tandem
