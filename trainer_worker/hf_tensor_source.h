// Tensors of a HF checkpoint on disk, as the oracle of a weight check.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/model_spec/model_spec.h"
#include "common/tensor_file/checkpoint_dir.h"
#include "common/weights/weight_publisher.h"

namespace tandem {

// Not collective: every rank reads for itself. Not thread-safe.
class HfTensorSource : public TensorSource {
 public:
  // `dtype` is the layout's. Errors as HfCheckpoint.
  static absl::StatusOr<std::unique_ptr<HfTensorSource>> Open(const std::string& model_dir,
                                                              const ModelSpec& spec,
                                                              DType dtype);
  absl::StatusOr<const void*> Gather(const TensorPlace& place) override;

 private:
  std::unique_ptr<const HfCheckpoint> checkpoint_;
  DType dtype_ = DType::kBFloat16;
  std::vector<std::byte> buffer_;
};

}  // namespace tandem
