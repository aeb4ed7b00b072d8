// A fixed batch of tokens that goes through every rollout and the trainer paired with it in every
// step: both must come to the same log-probs, bit for bit, whatever the step's own batch holds and
// whether its log-probs are compared or not.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/base/mutex.h"
#include "common/memory/op_sizes.h"
#include "common/types/sample.h"
#include "controller/workers/rollout_client.h"

namespace tandem {

struct ProbeOptions {
  int pairs = 1;
  int64_t vocab_limit = 1;   // ids at or above are no tokens
  float temperature = 1.0f;  // of the run's own samples
  // Prompt and response that rollout and micro-batch hold, at least 2.
  int64_t max_tokens = 1 << 30;
};

// Sequences of the lengths of ProbeSequences (common/memory/op_sizes.h), at the temperature of
// the run's own samples. The prompts are drawn once from a fixed seed, so that they are the same in
// every run with the same tokenizer. Thread-safe: rollouts' samples arrive while trainers read.
class Probe {
 public:
  explicit Probe(const ProbeOptions& options);

  // Starts a step and forgets the one before. What every rollout is to generate, each group for one
  // of them alone.
  std::vector<GroupRequest> Begin(int64_t step, int64_t version);
  // For a rollout that came back: what it is to generate of what another life of it has generated
  // in this step. Both are compared.
  std::vector<GroupRequest> Again(int rank);
  // How often the rollout that was lost most has been asked in this step.
  int lives() const;
  // Which of them Samples hands out from now on; 0, the first, after Begin.
  void BeginLife(int life);
  // Whether a sample answers one of those requests; all others are the step's own.
  static bool Owns(const Sample& sample) { return sample.group < 0; }
  // Keeps what a rollout generated. DataLoss: weights of another version sampled it. Internal: a
  // response without tokens or log-probs.
  absl::Status Put(Sample sample);

  // What the rollout of `rank` generated in this step and life, in order of sample id. NotFound:
  // other step.
  absl::StatusOr<std::vector<Sample>> Samples(int64_t step, int rank) const;
  // What the trainer of `rank` makes of one of them. Idempotent. NotFound: other step, unknown
  // sample; InvalidArgument: wrong length.
  absl::Status PutLogProbs(int64_t step,
                           int rank,
                           uint64_t sample_id,
                           const std::vector<float>& log_probs);

  // The number of tokens whose log-probs are the same bits: all. DataLoss names the first that
  // differs by rollout, position and both values. Internal: a sample or its log-probs did not come.
  absl::StatusOr<int64_t> Compare() const;

 private:
  using Key = std::pair<int, uint64_t>;  // rank and sample id
  struct Pair {
    Sample sample;  // of the rollout
    std::vector<float> trainer;
  };

  GroupRequest Ask(int rank, size_t prompt, int life) ABSL_EXCLUSIVE_LOCKS_REQUIRED(probe_mutex_);

  const int pairs_;
  const float temperature_;
  const int64_t response_tokens_;
  std::vector<std::vector<int32_t>> prompts_;
  mutable Mutex probe_mutex_;
  int64_t step_ ABSL_GUARDED_BY(probe_mutex_) = -1;
  int64_t version_ ABSL_GUARDED_BY(probe_mutex_) = -1;
  int life_ ABSL_GUARDED_BY(probe_mutex_) = 0;
  std::map<std::pair<int, size_t>, int> asked_
      ABSL_GUARDED_BY(probe_mutex_);  // lives, by rank and prompt
  std::map<Key, Pair> results_ ABSL_GUARDED_BY(probe_mutex_);
};

}  // namespace tandem
