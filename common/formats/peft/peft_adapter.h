// An adapter directory as PEFT writes it: adapter_config.json and adapter_model.safetensors.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/formats/peft/peft_config.h"
#include "common/formats/safetensors.h"
#include "common/lora/lora_spec.h"

namespace tandem {

// Checks the tensors of `file` as far as possible without the base: each is a lora_A or lora_B of
// two dimensions, of a float dtype and of rank `config.lora.rank`, no module lacks one of its two,
// and every value is finite. Messages and codes are those of PeftAdapter::Open. Reads every
// element.
absl::Status CheckPeftTensors(const SafetensorsFile& file, const PeftConfig& config);

// Immutable and thread-safe. The tensors are mapped.
class PeftAdapter {
 public:
  // Reads both files, and every element once. InvalidArgument names file, tensor, reason and
  // remedy: a tensor is missing or belongs to no target, `model` does not have the module (the
  // adapter is for another base), a shape contradicts the model or r, the dtype is not a float, or
  // two tensors are the same matrix. DataLoss: a value is not finite, or a file is corrupt.
  // NotFound: a missing file. Other errors as ParsePeftConfig and MakeLoraSpec.
  static absl::StatusOr<std::unique_ptr<const PeftAdapter>> Open(const std::string& dir,
                                                                 const ModelSpec& model);

  const std::string& dir() const { return dir_; }
  const LoraSpec& spec() const { return spec_; }
  const PeftConfig& config() const { return config_; }
  // The stored dtype: F32, BF16 or F16; F32 if tensors differ.
  DType dtype() const { return dtype_; }

  // Reads rows [row_begin, row_begin + rows) of a matrix of spec().targets[target] as fp32 into
  // `out`: rows of A have `in` elements, rows of B `rank`. InvalidArgument: rows outside the
  // matrix.
  absl::Status ReadRows(
      size_t target, LoraMatrix matrix, int64_t row_begin, int64_t rows, float* out) const;

 private:
  PeftAdapter(std::string dir, PeftConfig config, LoraSpec spec)
      : dir_(std::move(dir)), config_(std::move(config)), spec_(std::move(spec)) {}
  absl::Status FindTensors(const ModelSpec& model);
  absl::Status CheckTensor(const SafetensorsTensor& tensor, size_t target, LoraMatrix matrix);
  absl::Status CheckFinite(size_t target, LoraMatrix matrix) const;

  std::string dir_;
  PeftConfig config_;
  LoraSpec spec_;
  DType dtype_ = DType::kFloat32;
  std::shared_ptr<const SafetensorsFile> file_;
  std::vector<std::string> names_;  // in the file, by target * 2 + matrix
};

// Writes an adapter directory of fp32 tensors, piece by piece in any order. If it is destroyed
// before Finish, it leaves nothing behind. Not thread-safe.
class PeftAdapterWriter {
 public:
  // `dir` must exist. `base_model` is the base_model_name_or_path of adapter_config.json. Allocates
  // the disk space. Errors as AtomicFile.
  static absl::StatusOr<std::unique_ptr<PeftAdapterWriter>> Create(const std::string& dir,
                                                                   const LoraSpec& spec,
                                                                   const std::string& base_model,
                                                                   double dropout = 0);

  // Writes `rows` rows of a matrix of spec.targets[target], starting at row_begin. Write each row
  // once.
  absl::Status WriteRows(
      size_t target, LoraMatrix matrix, int64_t row_begin, int64_t rows, const float* values);
  // FailedPrecondition names an incomplete matrix. Both files are then complete and synced.
  absl::Status Finish();

 private:
  PeftAdapterWriter(std::string dir, LoraSpec spec, std::string config)
      : dir_(std::move(dir)), spec_(std::move(spec)), config_(std::move(config)) {}
  std::string dir_;
  LoraSpec spec_;
  std::string config_;
  std::unique_ptr<SafetensorsWriter> writer_;
};

// How PEFT names tensors, in a model with adapters and in an adapter's file.
struct PeftTensorName {
  std::string module;  // HF spelling
  LoraMatrix matrix = LoraMatrix::kA;
};

// Parses "base_model.model.<module>.lora_A.weight"; the prefix may be missing, and the adapter's
// name "default" may precede ".weight". nullopt for any other name.
std::optional<PeftTensorName> ParsePeftTensorName(const std::string& name);

// The files that a weight check under LoRA reads in a directory with which it compares.

// The folder of adapters, in PEFT's format, in a checkpoint.
inline constexpr char kAdapterFolder[] = "lora_adapter";

// Exactly one of the two is set.
struct LoraCheckFiles {
  std::string model;    // its weights, adapters merged into them
  std::string adapter;  // an adapter of the base on disk (model.path)
};

// `directory` is an adapter, a Hugging Face model, or a checkpoint, which may contain both: if
// rollouts hold merged weights (`merged`), the model is chosen, else the adapter. Only looks which
// files exist. NotFound: there is no such directory, or it has neither. InvalidArgument: it has
// only a model, but rollouts hold adapters separately from the base.
absl::StatusOr<LoraCheckFiles> FindLoraCheckFiles(const std::string& directory, bool merged);

// Describes the files for reports: "DIR", or "MODEL_DIR with the adapter of DIR".
std::string LoraCheckText(const LoraCheckFiles& files, const std::string& model_dir);

}  // namespace tandem
