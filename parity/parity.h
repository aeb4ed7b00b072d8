// Checks that rollout and trainer compute the same log-prob for every token, bit for bit: runs both
// on one workload and, if they differ, finds the first op, layer, row and element that differ.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "parity/sides.h"

namespace tandem {

struct ParityOptions {
  std::string model_dir;  // HF checkpoint, with its tokenizer unless `prompts` is set
  int64_t tokens = 2000;  // lower bound of the response tokens to compare
  int64_t response_tokens = 64;
  int64_t samples_per_prompt = 4;
  int64_t max_num_seqs = 64;
  int64_t max_num_batched_tokens = 512;
  float temperature = 1.0f;
  uint64_t seed = 1;
  int threads = 1;
  // Token ids; empty: built-in texts, encoded with the model's tokenizer.
  std::vector<std::vector<int32_t>> prompts;
  // Set by tests; empty: CreateCpuForwardOps.
  MakeOps rollout_ops, trainer_ops;
};

// The comparison of two sides over all tokens.
struct SideComparison {
  std::string first, second;  // names of the sides
  int64_t compared = 0;
  int64_t identical = 0;
  double max_abs_difference = 0;
  double mean_abs_difference = 0;
};

// The first difference between two sides.
struct FirstDifference {
  std::string first, second;
  std::string op;  // "linear qkv", "silu_mul", ..., "log-prob"
  int layer = -1;  // -1: outside the layers
  uint64_t sample_id = 0;
  int64_t position = 0;  // of the row's input token
  int64_t prompt_tokens = 0;
  int64_t element = 0;
  int64_t elements = 1;                   // in the row
  std::string first_value, second_value;  // "0x3f81 (1.0078125)"
  // If not empty, says why fields above are unknown, or that one side computed two results.
  std::string note;
};

struct ParityReport {
  std::string numerics_class, kernel_set;
  int64_t prompts = 0, samples = 0;
  std::vector<SideComparison> comparisons;  // decode with trainer, and decode with prefill
  std::vector<SideRun> sides;               // without log-probs
  std::vector<std::string> missing_ops;     // ops that a side should have run and did not
  std::optional<FirstDifference> divergence;

  bool ok() const;
};

// InvalidArgument: an option or the model; otherwise errors of the sides. A difference is not an
// error; it is in the report.
absl::StatusOr<ParityReport> RunParity(const ParityOptions& options);

// The report as text, and as one line of JSON.
std::string ParityText(const ParityReport& report);
std::string ParityJson(const ParityReport& report);

}  // namespace tandem
