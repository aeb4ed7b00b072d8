// Reads GGUF files (versions 2 and 3, little endian), as specified in ggml's docs/gguf.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <absl/status/statusor.h>

#include "common/formats/files.h"

namespace tandem {

// Integers of every width are held as int64_t, both float widths as double.
using GgufValue = std::variant<int64_t,
                               double,
                               bool,
                               std::string,
                               std::vector<int64_t>,
                               std::vector<double>,
                               std::vector<bool>,
                               std::vector<std::string>>;

struct GgufTensor {
  std::string name;
  std::vector<int64_t> shape;  // outermost dimension first (the file stores it last)
  uint32_t type = 0;           // ggml_type; names: GgufTypeName
  uint64_t begin = 0;          // bytes from the start of the file
  uint64_t bytes = 0;          // 0 if the type is not supported
};

// "Q4_1"; types that cannot be dequantised here have names too.
std::string GgufTypeName(uint32_t type);

// Immutable and thread-safe.
class GgufFile {
 public:
  // DataLoss names what is truncated or out of bounds; InvalidArgument a file that is not GGUF or
  // of another version. Tensor types are checked when a tensor is read.
  static absl::StatusOr<std::unique_ptr<GgufFile>> Open(const std::string& path);

  const std::string& path() const { return file_->path(); }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* Find(const std::string& name) const;  // nullptr: there is none
  bool HasKey(const std::string& key) const { return metadata_.count(key) > 0; }

  // Metadata; NotFound or InvalidArgument (wrong type) name file and key.
  absl::StatusOr<int64_t> Integer(const std::string& key) const;
  absl::StatusOr<double> Number(const std::string& key) const;  // accepts integers
  absl::StatusOr<bool> Flag(const std::string& key) const;
  absl::StatusOr<std::string> Text(const std::string& key) const;
  absl::StatusOr<std::vector<int64_t>> Integers(const std::string& key) const;
  absl::StatusOr<std::vector<std::string>> Texts(const std::string& key) const;

  // The tensor's elements as fp32, row-major; F32, F16, BF16, Q4_0, Q4_1 and Q8_0 are known,
  // another type is Unimplemented, naming tensor and type.
  absl::StatusOr<std::vector<float>> Dequantize(const GgufTensor& tensor) const;

 private:
  explicit GgufFile(std::shared_ptr<const MappedFile> file) : file_(std::move(file)) {}
  template <typename T>
  absl::StatusOr<T> Get(const std::string& key, const char* expected) const;
  absl::Status Parse();
  absl::Status PlaceTensors(uint64_t header_end);

  std::shared_ptr<const MappedFile> file_;
  std::map<std::string, GgufValue> metadata_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, size_t> index_;
};

// ggml's storage types: their block layouts and exact values. Formulas from ggml's quants: value =
// d * q (+ m), where d and m are stored as fp16 and the arithmetic is in fp32, multiply before add.
struct GgufBlockType {
  uint32_t type;
  const char* name;
  size_t block_elements;
  size_t block_bytes;
  // One block of `block_elements` values.
  void (*dequantize)(const uint8_t* block, float* values);
};

// nullptr when the type cannot be read.
const GgufBlockType* FindGgufBlockType(uint32_t type);

}  // namespace tandem
