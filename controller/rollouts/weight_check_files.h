// What a weight check compares the rollouts' weights with, by what the run trains. Assembly chooses
// one.
#pragma once

#include <memory>
#include <string>

#include <absl/status/status.h>

namespace tandem {

// How a check of a full run describes the trainers' weights.
inline constexpr char kTrainersOwnWeights[] = "the trainers";

// Immutable; thread-safe.
class WeightCheckFiles {
 public:
  virtual ~WeightCheckFiles() = default;

  // The directory whose files the rollouts' weights equal when the trainers have loaded
  // `checkpoint` (empty: the start of the run). "": no file has these weights, and a check compares
  // with the trainers' own.
  virtual std::string Find(const std::string& checkpoint) const = 0;
  // Whether a check can compare with `directory`, which a user may have named. NotFound,
  // InvalidArgument: it has no files for that; the message names what is missing.
  virtual absl::Status Check(const std::string& directory) const = 0;
  // The files that a check with `directory` reads, in words; of "" the trainers' weights.
  virtual std::string Describe(const std::string& directory) const = 0;
};

struct CheckFilesOptions {
  std::string model_dir;  // model.path
  // Whether a checkpoint's bf16 export holds the bits that rollouts serve, which it does not where
  // they compute in float32.
  bool exact_export = true;
};

// All weights are trained: checks read HF checkpoints.
std::unique_ptr<WeightCheckFiles> MakeFullCheckFiles(CheckFilesOptions options);

// Adapters are trained, and `merged` into the weights that rollouts serve or sent in addition to
// them. Training starts from the adapters in `adapter_path`; empty: from new ones, whose B is zero.
// Checks read HF checkpoints (merged only), checkpoints with adapters, and adapter directories
// (FindLoraCheckFiles).
std::unique_ptr<WeightCheckFiles> MakeAdapterCheckFiles(CheckFilesOptions options,
                                                        bool merged,
                                                        std::string adapter_path);

}  // namespace tandem
