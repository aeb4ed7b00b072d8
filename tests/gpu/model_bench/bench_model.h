// The models whose speed gpu_model_bench measures, and what their work comes to in bytes and FLOPs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/model_spec/model_spec.h"

namespace tandem::testing {

// Tokens unless the name says otherwise. Prompts are of one length and have nothing in common.
struct BenchModel {
  std::string name;  // in figures: "0.6b"
  ModelSpec spec;
  int64_t vocab_limit = 0;

  int64_t prompt = 512;                         // of each sequence
  std::vector<int64_t> batches = {1, 64, 256};  // sequences that decode at once, ascending
  int64_t warm_steps = 4;                       // done, captured, replayed twice
  int64_t timed_steps = 32;
  int64_t prefill_prompts = 32;  // computed in chunks of step_tokens
  int64_t step_tokens = 8192;    // rollout.max_num_batched_tokens

  int64_t train_samples = 8;  // of an optimizer step, each of train_prompt + train_response
  int64_t train_prompt = 512;
  int64_t train_response = 1536;
  int64_t micro_batch = 8192;  // actor.ppo_max_token_len_per_gpu
  int64_t warm_updates = 2;
  int64_t timed_updates = 3;
};

// Qwen3's shapes: 0.6b, 4b, 8b; and tiny, for the emulator. InvalidArgument lists the names.
absl::StatusOr<BenchModel> FindBenchModel(const std::string& name);

// What one decode step has to read from memory: every weight that a token passes, once (all but the
// embedding's rows, of which it takes one), and K and V, in bf16, of every position that a sequence
// has reached, `positions` over all sequences.
int64_t DecodeStepBytes(const ModelSpec& spec, int64_t positions);

// FLOPs of a forward pass in which `rows` go through the layers and `scored` of them through the
// head: 2 for each row and weight of a product, and in each layer 4 * heads * head_dim for each
// pair of a query and a key that it sees (its score, and its value's share).
struct ForwardWork {
  int64_t rows = 0;
  int64_t scored = 0;
  int64_t pairs = 0;
};
double ForwardFlops(const ModelSpec& spec, const ForwardWork& work);
// With the backward pass, which is twice the forward pass; what is recomputed does not count. For
// scored = rows this is 6 N rows + attention with N the weights of products.
double TrainingFlops(const ModelSpec& spec, const ForwardWork& work);
// Pairs of one sequence of `rows` from position 0 on.
int64_t CausalPairs(int64_t rows);

}  // namespace tandem::testing
