// Reads safetensors files: 8 bytes of header length, a JSON header, then the tensors' bytes without
// gaps. Open checks everything, so that a corrupt file is never partly loaded.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/formats/files.h"
#include "common/types/tensor_view.h"

namespace tandem {

struct SafetensorsTensor {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // bytes from the start of the file
  uint64_t end = 0;
};

// Immutable and thread-safe; views point into the mapping and live as long as this object.
class SafetensorsFile {
 public:
  // DataLoss names file, tensor, expected and actual bytes for truncated or inconsistent content;
  // InvalidArgument a tensor whose dtype is not supported; NotFound a missing file.
  static absl::StatusOr<std::shared_ptr<const SafetensorsFile>> Open(const std::string& path);

  const std::string& path() const { return file_->path(); }
  // In the order of their bytes in the file.
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // nullptr when there is none of that name.
  const SafetensorsTensor* Find(const std::string& name) const;
  // NotFound names file and tensor. The memory is read-only and may be unaligned for its dtype.
  absl::StatusOr<TensorView> View(const std::string& name) const;
  // Those of MappedFile, for a part of a view; CheckWhole when its bytes were read.
  void ReadExactly(const void* first, size_t bytes) const { file_->ReadExactly(first, bytes); }
  void LetGo(const void* first, size_t bytes) const { file_->LetGo(first, bytes); }
  absl::Status CheckWhole() const { return file_->CheckWhole(); }

 private:
  explicit SafetensorsFile(std::shared_ptr<const MappedFile> file) : file_(std::move(file)) {}
  absl::Status ReadHeader();
  std::shared_ptr<const MappedFile> file_;
  std::vector<SafetensorsTensor> tensors_;
  std::map<std::string, size_t> index_;
  std::map<std::string, std::string> metadata_;
};

// Writes a safetensors file piece by piece: all tensors are declared first, then their bytes are
// written in any order. The complete file appears at Finish.
struct TensorDeclaration {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
};

// Not thread-safe. If it is destroyed before Finish, it leaves nothing behind.
class SafetensorsWriter {
 public:
  // Stores tensors in the given order and allocates the space of the complete file.
  // InvalidArgument: a name occurs twice. Errors of the disk as AtomicFile.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      const std::string& path,
      const std::vector<TensorDeclaration>& tensors,
      const std::map<std::string, std::string>& metadata = {});

  // Writes `bytes` of the tensor at `byte_offset`. InvalidArgument: the name was not declared, or
  // the range exceeds the tensor. Write each byte once.
  absl::Status Write(const std::string& name,
                     const void* data,
                     uint64_t bytes,
                     uint64_t byte_offset = 0);
  // Syncs and renames the file. FailedPrecondition names an incomplete tensor.
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
