// The weights of a Hugging Face model directory: one model.safetensors, or several with an index.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/formats/safetensors.h"
#include "common/model_spec/model_spec.h"
#include "common/types/tensor_view.h"

namespace tandem {

// Immutable and thread-safe. Weights are mapped and not read: opening is cheap, and pages are read
// at first use.
class HfCheckpoint {
 public:
  // Checks that every tensor of HfTensors(spec) is present with its shape and a float dtype, and
  // that there is no unexpected one. A tied checkpoint may have an lm_head.weight that equals the
  // embedding byte for byte. NotFound: there are no weights, or a file that the index names is
  // missing. InvalidArgument names file, tensor, expected and actual shape or dtype. DataLoss: a
  // corrupt file.
  static absl::StatusOr<std::unique_ptr<const HfCheckpoint>> Open(const std::string& model_dir,
                                                                  const ModelSpec& spec);

  // In execution order: HfTensors(spec).
  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  // The stored bytes, read-only and possibly unaligned for their dtype. NotFound for a name that
  // is not in tensors().
  absl::StatusOr<TensorView> View(const std::string& name) const;
  // The paths of the files that the tensors are read from, sorted.
  std::vector<std::string> files() const;
  // bfloat16 if all tensors have it, else float32, which represents all of them exactly.
  DType exact_dtype() const;
  // Reads rows [row_begin, row_begin + rows) of dim 0 as F32 or BF16 (rounded to nearest even) into
  // `buffer`, which has room for them, and reads nothing else from disk. InvalidArgument: rows
  // outside the tensor.
  absl::Status ReadRows(
      const std::string& name, int64_t row_begin, int64_t rows, DType dtype, void* buffer) const;

 private:
  HfCheckpoint(std::string dir, std::vector<TensorSpec> tensors)
      : dir_(std::move(dir)), tensors_(std::move(tensors)) {}
  absl::Status MapSingle(const std::string& path);
  absl::Status MapSharded(const std::string& index_path);
  absl::Status Check(const ModelSpec& spec) const;
  absl::Status CheckExtra(const std::string& name, const ModelSpec& spec) const;

  std::string dir_;
  std::vector<TensorSpec> tensors_;
  std::map<std::string, std::shared_ptr<const SafetensorsFile>> file_of_;  // by tensor name
};

// Checks whether a model directory can be used, before anything is started for it. Reads
// config.json and the headers of the weight files, and no weights except a stored lm_head of a tied
// model. Errors as LoadModelSpec and HfCheckpoint::Open; also InvalidArgument if sequences of
// `tokens` (prompt and response) exceed the positions of the model.
absl::StatusOr<ModelSpec> CheckModel(const std::string& model_dir, int64_t tokens);

// InvalidArgument: the tokenizer in `model_dir` has more ids than the embedding has rows.
absl::Status CheckVocabulary(const std::string& model_dir, const ModelSpec& spec, int64_t ids);

// Writes a Hugging Face model directory in bf16, which transformers and vLLM can load. A trainer's
// checkpoint contains one besides the training state.

// Returns the address of rows [row_begin, row_begin + rows) of dim 0 of `tensor` (HF name, unfused)
// as bf16, valid until the next call. Called tensor by tensor in execution order, in ascending
// ranges of RowsPerRange(bytes of a row) rows (row_ranges.h), so that a sharded caller can gather
// as it goes. An error ends the export.
using RowSource = std::function<absl::StatusOr<const Bf16*>(
    const TensorSpec& tensor, int64_t row_begin, int64_t rows)>;

// Writes config.json, model.safetensors and generation_config.json into `dir`, which must exist,
// and copies the tokenizer's files from `tokenizer_dir`. Each file is complete and synced; the
// caller makes the directory appear at once (AtomicDirectory). Errors as AtomicFile, and the
// source's.
absl::Status WriteHfFiles(const ModelSpec& spec,
                          const std::string& tokenizer_dir,
                          const std::string& dir,
                          const RowSource& source);

// Copies tokenizer.json, tokenizer_config.json and their companions; NotFound if tokenizer_dir has
// no tokenizer.json.
absl::Status CopyTokenizerFiles(const std::string& tokenizer_dir, const std::string& dir);

}  // namespace tandem
