// tandemctl lora: adapters on disk, without a controller.
#pragma once

#include <ostream>
#include <string>

#include <absl/status/status.h>

namespace tandem {

struct LoraMergeOptions {
  std::string base;                // HF checkpoint directory
  std::string adapter;             // PEFT's directory
  std::string out;                 // HF checkpoint directory to write
  std::string dtype = "bfloat16";  // bfloat16, float32 or base
  std::string rule = "served";     // served or peft
};

// MergeCheckpoint, and says what it wrote. InvalidArgument lists the known dtypes and rules.
absl::Status LoraMergeCommand(const LoraMergeOptions& options, std::ostream& out);

// Rank, alpha, scaling, targets, tensors and bytes of an adapter; its base need not be there.
// Errors as ParsePeftConfig and SafetensorsFile::Open.
absl::Status LoraInspectCommand(const std::string& adapter, std::ostream& out);

}  // namespace tandem
