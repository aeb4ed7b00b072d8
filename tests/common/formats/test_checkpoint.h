// Small checkpoint directories, whole or broken on purpose.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/model_spec/model_spec.h"
#include "common/types/tensor_view.h"

namespace tandem::testing {

struct StoredTensor {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  std::string bytes;
};
using StoredTensors = std::map<std::string, StoredTensor>;

// Two layers, hidden 8, 2 heads of 4, 1 KV head, 12 rows of vocabulary.
ModelSpec StoredSpec(bool tied = true);
// All tensors of `spec` as F32; element i of a tensor is i / 8 plus the tensor's number.
StoredTensors SmallTensors(const ModelSpec& spec);
void WriteStored(const std::string& path, const StoredTensors& tensors);
// Just enough for CopyTokenizerFiles.
void WriteTokenizerFiles(const std::string& dir);

}  // namespace tandem::testing
