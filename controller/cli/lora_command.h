// tandemctl lora: adapters on disk, without a controller.
#pragma once

#include <ostream>
#include <string>

#include <CLI/CLI.hpp>
#include <absl/status/status.h>

namespace tandem {

struct LoraMergeOptions {
  std::string base;                // HF checkpoint directory
  std::string adapter;             // PEFT's directory
  std::string out;                 // HF checkpoint directory to write
  std::string dtype = "bfloat16";  // bfloat16, float32 or base
  std::string rule = "served";     // served or peft
};

// MergeCheckpoint, and says what it wrote; first that the adapter names another base, where it
// names one whose last part is not that of BASE. InvalidArgument lists the known dtypes and rules.
absl::Status LoraMergeCommand(const LoraMergeOptions& options, std::ostream& out);

struct LoraInspectOptions {
  std::string adapter;  // PEFT's directory
  std::string base;     // HF checkpoint directory, or empty: it is not compared with one
  bool json = false;
};

// Rank, alpha, scaling, targets, tensors and bytes of an adapter. With a base, whose config.json is
// enough, every tensor is compared with it. Errors as ParsePeftConfig, SafetensorsFile::Open and,
// with a base, PeftAdapter::Open.
absl::Status LoraInspectCommand(const LoraInspectOptions& options, std::ostream& out);

// The command line of `tandemctl lora merge`.

// `options` outlives the command.
void AddMergeOptions(CLI::App& merge, LoraMergeOptions& options);

}  // namespace tandem
