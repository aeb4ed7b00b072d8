// `tandemctl lora`: commands on adapter folders, without a controller.
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

// Runs MergeCheckpoint and prints a summary, after a warning if the adapter names another base (one
// whose last path component is not that of BASE). InvalidArgument: unknown dtype or rule; lists the
// known ones.
absl::Status LoraMergeCommand(const LoraMergeOptions& options, std::ostream& out);

struct LoraInspectOptions {
  std::string adapter;  // PEFT's directory
  std::string base;     // HF checkpoint directory; empty: no comparison
  bool json = false;
};

// Prints rank, alpha, scaling, targets, tensors and bytes of an adapter. Compares every tensor with
// the base if one is given, for which its config.json is enough. Errors as ParsePeftConfig,
// SafetensorsFile::Open and, with a base, PeftAdapter::Open.
absl::Status LoraInspectCommand(const LoraInspectOptions& options, std::ostream& out);

// The command line of `tandemctl lora merge`. `options` must outlive the command.
void AddMergeOptions(CLI::App& merge, LoraMergeOptions& options);

}  // namespace tandem
