// The three ways to compute the log-probs of the same samples, each with the code that runs in
// training: a rollout that decodes, a rollout that prefills, and a trainer's forward. Every run
// loads the model and creates its own ops, so that only files and threads are shared.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/ops/forward_ops.h"
#include "common/types/sample.h"
#include "parity/op_watch.h"
#include "rollout_worker/generation/generator.h"

namespace tandem {

using MakeOps = std::function<absl::StatusOr<std::unique_ptr<ForwardOps>>()>;

struct SideOptions {
  std::string model_dir;
  ModelSpec spec;
  DType dtype = DType::kBFloat16;
  int64_t vocab_limit = 0;    // token ids are below it
  int64_t max_model_len = 0;  // tokens of the longest sample
  int64_t max_num_seqs = 64;
  // The limit of rows in a rollout's pass; a trainer's micro-batch may have at least as many.
  int64_t max_num_batched_tokens = 512;
  bool share_prompts = true;
  std::shared_ptr<ThreadPool> pool;  // shared, because the sides run one after another
  MakeOps rollout_ops, trainer_ops;
};

// The results of one side; log-probs by sample id, one per response token.
struct SideRun {
  std::string name;
  std::map<uint64_t, std::vector<float>> log_probs;
  OpCounts counts;
  double seconds = 0;
};

// Each side calls `listener`, unless it is null, with sample ids as sequences. Errors: of the
// model's files, the machine or memory.

// Generates the requests together; writes the samples to `samples` in order of sample id.
absl::StatusOr<SideRun> RunDecode(const SideOptions& options,
                                  const std::vector<GenerationRequest>& requests,
                                  OpListener* listener,
                                  std::vector<Sample>* samples);
// Prefills the samples without their last tokens, as prompts, and samples the last token again; its
// log-prob is NaN if another token was sampled. `seed`: that of the requests.
absl::StatusOr<SideRun> RunPrefill(const SideOptions& options,
                                   const std::vector<Sample>& samples,
                                   uint64_t seed,
                                   OpListener* listener);
absl::StatusOr<SideRun> RunTrainer(const SideOptions& options,
                                   const std::vector<Sample>& samples,
                                   OpListener* listener);

}  // namespace tandem
