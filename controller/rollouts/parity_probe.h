// A fixed set of prompts that every rollout samples in every step and whose log-probs the trainer
// that sends it weights recomputes: both must agree bit for bit, whatever the step's own batch
// contains and whether its log-probs are compared or not.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/base/mutex.h"
#include "common/memory/op_sizes.h"
#include "common/types/sample.h"
#include "common/types/topology.h"
#include "controller/workers/agents/active_rollouts.h"
#include "controller/workers/rollout_client.h"

namespace tandem {

struct ParityProbeOptions {
  Topology topology;
  // Those that are asked; null: all, for ever.
  std::shared_ptr<const ActiveRollouts> rollouts;
  int64_t vocab_limit = 1;   // token ids are below it
  float temperature = 1.0f;  // of the run's own samples
  // Tokens of prompt and response that fit a rollout and a micro-batch, at least 2.
  int64_t max_tokens = 1 << 30;
};

// Sequences of the lengths of ProbeSequences (common/memory/op_sizes.h), at the temperature of
// the run's own samples. The prompts are drawn once from a fixed seed, so that they are the same in
// every run with the same tokenizer. Thread-safe: rollouts' samples arrive while trainers read.
class ParityProbe {
 public:
  explicit ParityProbe(const ParityProbeOptions& options);

  // Begins a step and drops the previous one. Returns the probe's requests, each for one rollout.
  std::vector<GroupRequest> Begin(int64_t step, int64_t version);
  // The requests for a rollout that has rejoined within the step, to be generated again by the new
  // process. Both answers are compared.
  std::vector<GroupRequest> Reissue(int rank);
  // The largest number of processes of one rollout that were asked in this step: 1 unless one was
  // lost.
  int attempts() const;
  // Chooses whose answers Samples returns; Begin chooses the first process's, 0.
  void SelectAttempt(int attempt);
  // Whether a sample answers a request of the probe; all others belong to the step.
  static bool Owns(const Sample& sample) { return sample.group < 0; }
  // Stores a rollout's answer. DataLoss: weights of another version sampled it. Internal: a
  // response without tokens or log-probs.
  absl::Status Put(Sample sample);

  // The answers that `trainer` scores, in this step and attempt: those of the rollouts that it
  // publishes to, by rank, each in order of sample id. NotFound: another step.
  absl::StatusOr<std::vector<Sample>> Samples(int64_t step, int trainer) const;
  // Stores the log-probs that the trainer computed for one of them. Idempotent. NotFound: another
  // step or an unknown sample; InvalidArgument: wrong length.
  absl::Status PutLogProbs(int64_t step,
                           int trainer,
                           uint64_t sample_id,
                           const std::vector<float>& log_probs);

  // Returns the number of tokens compared, all with equal bits. DataLoss names the first difference
  // by rollout, position and both values. Internal: a sample or its log-probs are missing, of a
  // rollout that was not left out in the step.
  absl::StatusOr<int64_t> Compare() const;

 private:
  using Key = std::pair<int, uint64_t>;  // the rollout's rank and the sample id
  struct Pair {
    Sample sample;  // of the rollout
    std::vector<float> trainer;
  };

  GroupRequest Ask(int rank, size_t prompt, int attempt)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(probe_mutex_);
  // Differs between the rollouts of one trainer, whose samples it is sent together.
  uint64_t IdOf(int rank, size_t prompt, int attempt) const;

  const Topology topology_;
  const std::shared_ptr<const ActiveRollouts> rollouts_;
  const float temperature_;
  const int64_t response_tokens_;
  std::vector<std::vector<int32_t>> prompts_;
  mutable Mutex probe_mutex_;
  // By rank, as the step began (ActiveRollouts::TimesLeftOut).
  std::map<int, int> left_out_before_ ABSL_GUARDED_BY(probe_mutex_);
  int64_t step_ ABSL_GUARDED_BY(probe_mutex_) = -1;
  int64_t version_ ABSL_GUARDED_BY(probe_mutex_) = -1;
  int attempt_ ABSL_GUARDED_BY(probe_mutex_) = 0;
  std::map<std::pair<int, size_t>, int> asked_
      ABSL_GUARDED_BY(probe_mutex_);  // attempts, by rank and prompt
  std::map<Key, Pair> results_ ABSL_GUARDED_BY(probe_mutex_);
};

}  // namespace tandem
