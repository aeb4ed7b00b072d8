// tandemctl weights: what an update carries and where it lies.
#pragma once

#include <ostream>
#include <string>

#include <absl/status/status.h>

namespace tandem {

struct WeightsManifestOptions {
  std::string model_dir;
  std::string dtype = "bfloat16";  // or float32: model.compute_dtype
  bool json = false;
};

// Every tensor of the model in `model_dir` with its place in a rollout's storage, and totals. Reads
// config.json alone. Errors as LoadModelSpec.
absl::Status WeightsManifestCommand(const WeightsManifestOptions& options, std::ostream& out);

}  // namespace tandem
