// Writing safetensors files piece by piece: all tensors are declared first, then their bytes arrive
// in any order. The file appears at Finish, whole.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/formats/atomic_file.h"
#include "common/types/tensor_view.h"

namespace tandem {

struct TensorDeclaration {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
};

// Not thread-safe. Dropped before Finish, it leaves nothing behind.
class SafetensorsWriter {
 public:
  // Tensors lie in the file in the order given. InvalidArgument for a name twice; disk errors as
  // AtomicFile: the space for the whole file is taken here.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      const std::string& path,
      const std::vector<TensorDeclaration>& tensors,
      const std::map<std::string, std::string>& metadata = {});

  // `bytes` of the tensor, starting `byte_offset` bytes into it. InvalidArgument for an undeclared
  // name or a slice that leaves the tensor. Each byte is to be written once.
  absl::Status Write(const std::string& name,
                     const void* data,
                     uint64_t bytes,
                     uint64_t byte_offset = 0);
  // FailedPrecondition names a tensor that is not complete. Syncs and renames.
  absl::Status Finish();

 private:
  struct Slot {
    uint64_t begin = 0;  // in the file
    uint64_t bytes = 0;
    uint64_t written = 0;
  };
  explicit SafetensorsWriter(std::unique_ptr<AtomicFile> file) : file_(std::move(file)) {}
  std::unique_ptr<AtomicFile> file_;
  std::map<std::string, Slot> slots_;
};

}  // namespace tandem
