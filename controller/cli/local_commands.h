// The commands that need no controller: import, data, config, parity, weights.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "common/process/exit_code.h"
#include "controller/data/datasets.h"

namespace tandem {

absl::Status ImportGgufCommand(const std::string& gguf, const std::string& dir, std::ostream& out);

// `task`: addition. InvalidArgument lists the known tasks.
absl::Status MakeDataCommand(const std::string& task,
                             const std::string& dir,
                             const AdditionOptions& options,
                             std::ostream& out);
// `format`: gsm8k or math. InvalidArgument lists the known formats.
absl::Status ConvertDataCommand(const std::string& format,
                                const std::string& input,
                                const std::string& output,
                                std::ostream& out);

absl::Status ConfigExplainCommand(const std::string& key, std::ostream& out);
absl::Status ConfigMarkdownCommand(std::ostream& out);
// Loads and validates a configuration as the controller would, and prints the resolved one.
// `failed_at`: the stage of an error.
absl::Status ConfigCheckCommand(const std::string& path,
                                const std::vector<std::string>& overrides,
                                FailedAt* failed_at,
                                std::ostream& out);

// `tandemctl parity`: runs tandem-parity, which links the code of both workers.
struct ParityCommandOptions {
  std::string model_dir;
  int64_t tokens = 2000;
  int64_t response_length = 64;
  int64_t max_num_seqs = 64;
  int64_t threads = 0;  // 0: all cores
  int64_t seed = 1;
  bool json = false;
};

// Replaces this process by tandem-parity from the same folder; returns only on failure. NotFound:
// the program could not be started.
absl::Status ParityCommand(const ParityCommandOptions& options);

// `tandemctl weights`: the contents of a weight update and their positions.
struct WeightsManifestOptions {
  std::string model_dir;
  std::string dtype = "bfloat16";  // or float32: model.compute_dtype
  bool json = false;
};

// Prints every tensor of the model in `model_dir` with its position in a rollout's storage, and
// totals. Reads only config.json. Errors as LoadModelSpec.
absl::Status WeightsManifestCommand(const WeightsManifestOptions& options, std::ostream& out);

}  // namespace tandem
