// The samples of the current step: token arrays in an append-only file, a small record of each in
// memory, so that the controller never holds a whole step's arrays.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/types/sample.h"

namespace tandem {

// What a response is worth.
struct Outcome {
  double score = 0;   // the reward function's
  double reward = 0;  // what advantages are made of: less the KL penalty with use_kl_in_reward
  double advantage = 0;
};

// What is known of a sample without reading its arrays.
struct SampleMeta {
  uint64_t sample_id = 0;
  int64_t group = 0;
  int64_t index = 0;
  int64_t prompt_tokens = 0;
  int64_t response_tokens = 0;
  FinishReason finish_reason = FinishReason::kNone;
  bool off_support = false;
  bool log_probs = true;       // came with the tokens
  int64_t weight_version = 0;  // of the first response token
  int64_t mini_batch = 0;
  int rank = 0;  // of the trainer that trains it
  Outcome outcome;
  int64_t offset = 0;       // of the record in the step's file
  int64_t ref_offset = -1;  // of the reference log-probs, -1: none
  int64_t old_offset = -1;  // of the recomputed log-probs, -1: none
  std::vector<Segment> segments;
  float temperature = 1;
};

// Thread-safe: rollouts' samples arrive while trainers' streams read.
class SampleStore {
 public:
  // Files go to `dir`/step_NNNNNN.samples. The folder is made. `keep`: steps whose files stay, the
  // newest among them; 0: all. A file has 4 bytes per prompt token and 16 per response token (12
  // without log-probs), and 4 more for each of reference and recomputed log-probs.
  static absl::StatusOr<std::unique_ptr<SampleStore>> Open(const std::string& dir, int64_t keep);
  ~SampleStore();

  // Starts a step's file anew, forgets the step before and removes files beyond `keep`, those of
  // later steps (which a replay or a new run makes again) included. Errors by IoErrorCode.
  absl::Status BeginStep(int64_t step);

  // AlreadyExists: that id was put before. InvalidArgument: arrays whose lengths do not fit.
  // DataLoss: a token that weights of another version than `version` sampled. ResourceExhausted:
  // disk full.
  absl::Status Put(const Sample& sample, int64_t version);
  bool Contains(uint64_t sample_id) const;

  // In order of sample id.
  std::vector<SampleMeta> Metas() const;
  void SetOutcome(uint64_t sample_id, const Outcome& outcome);
  void Assign(uint64_t sample_id, int64_t mini_batch, int rank);

  enum class LogProbs { kReference, kRecomputed };
  // Idempotent. NotFound: other step or unknown sample; InvalidArgument: wrong length.
  absl::Status PutLogProbs(int64_t step,
                           LogProbs kind,
                           uint64_t sample_id,
                           const std::vector<float>& log_probs);

  // Ids of one rank and mini-batch (-1: all), ascending. NotFound: not the current step.
  absl::StatusOr<std::vector<uint64_t>> Assigned(int64_t step, int64_t mini_batch, int rank) const;

  // The whole sample, with reward, advantages (the scalar on every response token) and whatever
  // log-probs came back. NotFound: unknown id; DataLoss: the file was cut.
  absl::StatusOr<Sample> Read(uint64_t sample_id) const;
  // Log-probs alone, [response tokens]; empty if there are none.
  absl::StatusOr<std::vector<float>> ReadLogProbs(LogProbs kind, uint64_t sample_id) const;

 private:
  SampleStore(std::string dir, int64_t keep) : dir_(std::move(dir)), keep_(keep) {}
  void Prune() const;
  absl::StatusOr<int64_t> Append(const std::string& bytes);
  absl::StatusOr<std::vector<float>> ReadFloats(int64_t offset, int64_t count) const;
  absl::Status ReadAt(int64_t offset, void* data, int64_t bytes) const;

  const std::string dir_;
  const int64_t keep_;
  mutable std::mutex mutex_;
  int fd_ = -1;
  std::string path_;
  int64_t step_ = -1;
  int64_t end_ = 0;
  std::map<uint64_t, SampleMeta> metas_;
};

}  // namespace tandem
