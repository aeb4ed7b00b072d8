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
  int64_t vocab_limit = 0;    // ids at or above are never drawn
  int64_t max_model_len = 0;  // tokens of the longest sample
  int64_t max_num_seqs = 64;
  int64_t max_num_batched_tokens = 512;  // rows of a pass, a trainer's micro-batch among them
  bool share_prompts = true;
  std::shared_ptr<ThreadPool> pool;  // the sides run one after another
  MakeOps rollout_ops, trainer_ops;
};

// The results of one side; log-probs by sample id, one per response token.
struct SideRun {
  std::string name;
  std::map<uint64_t, std::vector<float>> log_probs;
  OpCounts counts;
  double seconds = 0;
};

// Every run calls `listener`, if given, with sample ids as sequences. Errors: the model's files,
// the machine, memory.

// Generates the requests together. `samples` gets them in order of sample id.
absl::StatusOr<SideRun> RunDecode(const SideOptions& options,
                                  const std::vector<GenerationRequest>& requests,
                                  OpListener* listener,
                                  std::vector<Sample>* samples);
// Feeds complete samples, less their last token, as prompts, and draws that token again; its
// log-prob is NaN if another token was drawn. `seed` is the requests'.
absl::StatusOr<SideRun> RunPrefill(const SideOptions& options,
                                   const std::vector<Sample>& samples,
                                   uint64_t seed,
                                   OpListener* listener);
absl::StatusOr<SideRun> RunTrainer(const SideOptions& options,
                                   const std::vector<Sample>& samples,
                                   OpListener* listener);

}  // namespace tandem
