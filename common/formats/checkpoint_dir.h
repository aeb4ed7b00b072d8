// The weights of a Hugging Face model directory: one model.safetensors, or several with an index.
#pragma once

#include <cstdint>
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

// Immutable and thread-safe. Weights are mapped, not read: opening is cheap, pages come on use.
class HfCheckpoint {
 public:
  // Checks that every tensor of HfTensors(spec) is there with its shape and a float dtype, and that
  // nothing unexpected is. A tied checkpoint may carry a lm_head.weight that equals the embedding
  // byte for byte. NotFound: no weights, or a file that the index names is missing.
  // InvalidArgument names file, tensor, expected and actual shape or dtype. DataLoss: corrupt file.
  static absl::StatusOr<std::unique_ptr<const HfCheckpoint>> Open(const std::string& model_dir,
                                                                  const ModelSpec& spec);

  // In execution order: HfTensors(spec).
  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  // The stored bytes, read-only and possibly unaligned for their dtype. NotFound for a name that
  // is not in tensors().
  absl::StatusOr<TensorView> View(const std::string& name) const;
  // bfloat16 if all tensors are, else float32, which holds any of them exactly.
  DType exact_dtype() const;
  // Rows [row_begin, row_begin + rows) of dim 0 as F32 or BF16 (rounded to nearest even) into
  // `buffer`, which holds rows * row elements; nothing else is read from disk. InvalidArgument for
  // rows outside the tensor.
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

}  // namespace tandem
