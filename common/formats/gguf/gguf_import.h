// Converts a GGUF file to a Hugging Face model directory, the only model format that all other code
// reads.
#pragma once

#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/formats/gguf/gguf_file.h"
#include "common/model_spec/model_spec.h"

namespace tandem {

// Writes config.json, model.safetensors (bf16, rounded to nearest even), tokenizer.json,
// tokenizer_config.json and generation_config.json. The directory appears complete or not at all.
// AlreadyExists: out_dir is not empty. Unimplemented names an architecture, tensor type or
// tokenizer that is not supported, DataLoss a corrupt file. ResourceExhausted: the disk is full.
absl::Status ImportGguf(const std::string& gguf_path, const std::string& out_dir);

// The sizes from the metadata; token ids are not set.
absl::StatusOr<ModelSpec> GgufModelSpec(const GgufFile& file);

}  // namespace tandem
