// Writing a Hugging Face model directory in bf16: what transformers and vLLM load, and what a
// trainer's checkpoint holds beside its state.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/model_spec/model_spec.h"
#include "common/types/tensor_view.h"

namespace tandem {

// Where rows [row_begin, row_begin + rows) of dim 0 of `tensor` (HF name, unfused) are as bf16
// until the next call. Called tensor by tensor in execution order, in ascending ranges of
// RowsPerRange(bytes of a row) rows (row_ranges.h), so that a sharded caller can gather as it goes;
// an error ends the export.
using RowSource = std::function<absl::StatusOr<const Bf16*>(
    const TensorSpec& tensor, int64_t row_begin, int64_t rows)>;

// Writes config.json, model.safetensors and generation_config.json into `dir`, which exists, and
// copies the tokenizer's files from `tokenizer_dir`. Each file is whole and synced; making the
// directory appear at once is the caller's (AtomicDirectory). Errors as AtomicFile, and the
// source's.
absl::Status WriteHfFiles(const ModelSpec& spec,
                          const std::string& tokenizer_dir,
                          const std::string& dir,
                          const RowSource& source);

// Copies tokenizer.json, tokenizer_config.json and their companions; NotFound if tokenizer_dir has
// no tokenizer.json.
absl::Status CopyTokenizerFiles(const std::string& tokenizer_dir, const std::string& dir);

}  // namespace tandem
