// Merges an adapter into its base on disk: the result is a Hugging Face directory of its own.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

#include "common/lora/merge.h"

namespace tandem {

struct MergeCheckpointOptions {
  enum class Rounding {
    // MergeRule::kServed on the base as it is stored; as BF16 these are the weights that a run
    // serves.
    kServed,
    // The result of PEFT's merge for a base that is loaded in the output's dtype, and so rounded
    // before the sum: MergeRule::kBf16Product for an adapter stored as BF16, else kServed.
    kPeft,
  };
  enum class Output { kBFloat16, kFloat32, kBase };  // kBase: each tensor as it is stored

  Rounding rounding = Rounding::kServed;
  Output output = Output::kBFloat16;
};

struct MergedCheckpoint {
  int64_t tensors = 0;
  int64_t merged = 0;  // of them with an adapter
  int64_t bytes = 0;   // of all tensors
};

// Writes config.json (with its dtype), model.safetensors, and copies of the generation config and
// of the tokenizer files that exist. Goes tensor by tensor in ranges of rows, and holds at most one
// A. `out_dir` appears complete or not at all. AlreadyExists: it is not empty. Unimplemented: F16
// with kBase, or an F16 adapter with kPeft. DataLoss: a merged value is not finite. Other errors as
// LoadModelSpec, HfCheckpoint::Open, PeftAdapter::Open and AtomicDirectory.
absl::StatusOr<MergedCheckpoint> MergeCheckpoint(const std::string& base_dir,
                                                 const std::string& adapter_dir,
                                                 const std::string& out_dir,
                                                 const MergeCheckpointOptions& options);

}  // namespace tandem
