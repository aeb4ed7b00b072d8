// The commands that need no controller: import, data, config.
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
// Loads and validates as the controller would, prints the resolved config. `failed_at` says what an
// error is about.
absl::Status ConfigCheckCommand(const std::string& path,
                                const std::vector<std::string>& overrides,
                                FailedAt* failed_at,
                                std::ostream& out);

// tandemctl parity: hands over to tandem-parity, which links both workers' code.
struct ParityCommandOptions {
  std::string model_dir;
  int64_t tokens = 2000;
  int64_t response_length = 64;
  int64_t max_num_seqs = 64;
  int64_t threads = 0;  // 0: all cores
  int64_t seed = 1;
  bool json = false;
};

// Replaces this process by the program beside it; returns only if that fails. NotFound: it is not
// there.
absl::Status ParityCommand(const ParityCommandOptions& options);

// tandemctl weights: what an update carries and where it lies.
struct WeightsManifestOptions {
  std::string model_dir;
  std::string dtype = "bfloat16";  // or float32: model.compute_dtype
  bool json = false;
};

// Every tensor of the model in `model_dir` with its place in a rollout's storage, and totals. Reads
// config.json alone. Errors as LoadModelSpec.
absl::Status WeightsManifestCommand(const WeightsManifestOptions& options, std::ostream& out);

}  // namespace tandem
