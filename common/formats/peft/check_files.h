// What a weight check under LoRA reads of a directory that it is told to compare with.
#pragma once

#include <string>

#include <absl/status/statusor.h>

namespace tandem {

// Beside a checkpoint's training state: the adapters, as PEFT writes them.
inline constexpr char kAdapterFolder[] = "lora_adapter";

// One of the two is empty.
struct LoraCheckFiles {
  std::string model;    // its weights, adapters merged into them
  std::string adapter;  // what it adds to the base on disk (model.path)
};

// `directory` is an adapter, a Hugging Face model, or a checkpoint, which may have both: where
// rollouts hold merged weights (`merged`) the model is taken, else the adapter. Looks for files,
// opens none. NotFound: there is no such directory, or neither in it. InvalidArgument: a model
// alone, where rollouts hold adapters beside the base.
absl::StatusOr<LoraCheckFiles> FindLoraCheckFiles(const std::string& directory, bool merged);

// The same in words, for reports: "DIR", or "MODEL_DIR with the adapter of DIR".
std::string LoraCheckText(const LoraCheckFiles& files, const std::string& model_dir);

}  // namespace tandem
