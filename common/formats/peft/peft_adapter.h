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

// What can be said of the tensors of `file` without the base: that each is a lora_A or lora_B of
// two dimensions, of floats, of rank `config.lora.rank`, that none of a module's two is missing,
// and that every value is finite. Messages and codes are those of PeftAdapter::Open. Reads every
// element.
absl::Status CheckPeftTensors(const SafetensorsFile& file, const PeftConfig& config);

// Immutable and thread-safe. The tensors are mapped, not held.
class PeftAdapter {
 public:
  // Reads both files and every element once. Beside ParsePeftConfig's and MakeLoraSpec's errors,
  // InvalidArgument names file, tensor, reason and remedy for: a tensor that is missing or belongs
  // to no target, a module that `model` does not have (the adapter of another base), a shape that
  // contradicts the model or r, a dtype that is no float, two tensors of one matrix. DataLoss: a
  // value that is not finite, a corrupt file. NotFound: a missing file.
  static absl::StatusOr<std::unique_ptr<const PeftAdapter>> Open(const std::string& dir,
                                                                 const ModelSpec& model);

  const std::string& dir() const { return dir_; }
  const LoraSpec& spec() const { return spec_; }
  const PeftConfig& config() const { return config_; }
  // As stored: F32, BF16 or F16; F32 where tensors differ.
  DType dtype() const { return dtype_; }

  // Rows [row_begin, row_begin + rows) of a matrix of spec().targets[target] as fp32 into `out`:
  // rows of A have `in` elements, rows of B `rank`. InvalidArgument for rows outside the matrix.
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

// Writes an adapter directory of fp32 tensors, piece by piece in any order. Not thread-safe.
// Dropped before Finish, it leaves nothing behind.
class PeftAdapterWriter {
 public:
  // `dir` exists. `base_model` is what adapter_config.json names as base_model_name_or_path. Errors
  // as AtomicFile; the space is taken here.
  static absl::StatusOr<std::unique_ptr<PeftAdapterWriter>> Create(const std::string& dir,
                                                                   const LoraSpec& spec,
                                                                   const std::string& base_model,
                                                                   double dropout = 0);

  // `rows` rows of a matrix of spec.targets[target], from row_begin on. Each row is written once.
  absl::Status WriteRows(
      size_t target, LoraMatrix matrix, int64_t row_begin, int64_t rows, const float* values);
  // FailedPrecondition names a matrix that is not complete. Both files are synced and whole.
  absl::Status Finish();

 private:
  PeftAdapterWriter(std::string dir, LoraSpec spec, std::string config)
      : dir_(std::move(dir)), spec_(std::move(spec)), config_(std::move(config)) {}
  std::string dir_;
  LoraSpec spec_;
  std::string config_;
  std::unique_ptr<SafetensorsWriter> writer_;
};

// How PEFT spells tensors, in a model that carries adapters and in an adapter's file.
struct PeftTensorName {
  std::string module;  // HF spelling
  LoraMatrix matrix = LoraMatrix::kA;
};

// Takes "base_model.model.<module>.lora_A.weight" apart; the prefix may be missing, and the name
// "default" of the adapter may stand before ".weight". Nothing for any other name.
std::optional<PeftTensorName> ParsePeftTensorName(const std::string& name);

// What a weight check under LoRA reads of a directory that it is told to compare with.

// Beside a checkpoint's training state: the adapters, as PEFT writes them.
inline constexpr char kAdapterFolder[] = "lora_adapter";

// One of the two is empty.
struct LoraCheckFiles {
  std::string model;    // its weights, adapters merged into them
  std::string adapter;  // an adapter of the base on disk (model.path)
};

// `directory` is an adapter, a Hugging Face model, or a checkpoint, which may have both: where
// rollouts hold merged weights (`merged`) the model is taken, else the adapter. Looks for files,
// opens none. NotFound: there is no such directory, or neither in it. InvalidArgument: a model
// alone, where rollouts hold adapters separately from the base.
absl::StatusOr<LoraCheckFiles> FindLoraCheckFiles(const std::string& directory, bool merged);

// The same in words, for reports: "DIR", or "MODEL_DIR with the adapter of DIR".
std::string LoraCheckText(const LoraCheckFiles& files, const std::string& model_dir);

}  // namespace tandem
