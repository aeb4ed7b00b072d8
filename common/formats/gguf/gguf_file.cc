#include "common/formats/gguf/gguf_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include <fmt/format.h>

#include "common/base/status.h"
#include "common/types/tensor_view.h"

namespace tandem {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kMaxDimensions = 4;   // ggml's

// gguf_metadata_value_type
enum class ValueType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64
};

// Reads the header from front to back. After the first error every read returns zero.
class Cursor {
 public:
  explicit Cursor(const MappedFile& file) : file_(file) {}

  const absl::Status& status() const { return status_; }
  uint64_t position() const { return position_; }
  bool ok() const { return status_.ok(); }

  template <typename T>
  T Scalar() {
    T value{};
    if (Take(sizeof(T))) std::memcpy(&value, file_.data() + position_ - sizeof(T), sizeof(T));
    return value;
  }
  std::string Text() {
    const uint64_t length = Scalar<uint64_t>();
    if (!Take(length)) return {};
    return std::string(reinterpret_cast<const char*>(file_.data()) + position_ - length, length);
  }
  int64_t Integer(ValueType type) {
    switch (type) {
      case ValueType::kUint8:
        return Scalar<uint8_t>();
      case ValueType::kInt8:
        return Scalar<int8_t>();
      case ValueType::kUint16:
        return Scalar<uint16_t>();
      case ValueType::kInt16:
        return Scalar<int16_t>();
      case ValueType::kUint32:
        return Scalar<uint32_t>();
      case ValueType::kInt32:
        return Scalar<int32_t>();
      case ValueType::kUint64:
        return static_cast<int64_t>(Scalar<uint64_t>());
      default:
        return Scalar<int64_t>();
    }
  }
  double Number(ValueType type) {
    return type == ValueType::kFloat32 ? static_cast<double>(Scalar<float>()) : Scalar<double>();
  }
  GgufValue Value(const std::string& key) {
    const ValueType type = static_cast<ValueType>(Scalar<uint32_t>());
    if (type == ValueType::kArray) return Array(key);
    if (type == ValueType::kString) return Text();
    if (type == ValueType::kBool) return Scalar<uint8_t>() != 0;
    if (type == ValueType::kFloat32 || type == ValueType::kFloat64) return Number(type);
    CheckKnown(type, key);
    return Integer(type);
  }
  void Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

 private:
  GgufValue Array(const std::string& key) {
    const ValueType type = static_cast<ValueType>(Scalar<uint32_t>());
    const uint64_t count = Scalar<uint64_t>();
    if (type == ValueType::kString) return Items<std::string>(count, [&] { return Text(); });
    if (type == ValueType::kBool) {
      return Items<bool>(count, [&] { return Scalar<uint8_t>() != 0; });
    }
    if (type == ValueType::kFloat32 || type == ValueType::kFloat64) {
      return Items<double>(count, [&] { return Number(type); });
    }
    if (type == ValueType::kArray) {
      Fail(InvalidArgument("{}: metadata key {} is an array of arrays, which is not supported",
                           file_.path(), key));
    }
    CheckKnown(type, key);
    return Items<int64_t>(count, [&] { return Integer(type); });
  }
  template <typename T, typename Function>
  std::vector<T> Items(uint64_t count, Function read) {
    std::vector<T> items;
    // No count can allocate more than what is left of the file can hold.
    items.reserve(std::min<uint64_t>(count, Left() / LeastBytes<T>()));
    for (uint64_t i = 0; i < count && ok(); ++i) items.push_back(read());
    return items;
  }
  void CheckKnown(ValueType type, const std::string& key) {
    if (type > ValueType::kFloat64) {
      Fail(absl::DataLossError(fmt::format("{}: metadata key {} has the unknown value type {}",
                                           file_.path(), key, static_cast<uint32_t>(type))));
    }
  }
  uint64_t Left() const { return file_.size() - position_; }
  // The least bytes of an item in the file: those of its length if it is a text.
  template <typename T>
  static constexpr uint64_t LeastBytes() {
    return std::is_same_v<T, std::string> ? sizeof(uint64_t)
           : std::is_same_v<T, double>    ? sizeof(float)
                                          : 1;
  }
  bool Take(uint64_t bytes) {
    if (!status_.ok()) return false;
    if (bytes > file_.size() - position_) {
      Fail(absl::DataLossError(fmt::format(
          "{} is truncated or corrupt: its header needs {} bytes at byte {} but the file has only "
          "{}; fetch it again",
          file_.path(), bytes, position_, file_.size())));
      return false;
    }
    position_ += bytes;
    return true;
  }
  const MappedFile& file_;
  uint64_t position_ = 0;
  absl::Status status_;
};

// Shape, type and the offset within the data section, which `begin` holds for now.
GgufTensor ReadTensorInfo(Cursor& cursor, const std::string& path) {
  GgufTensor tensor;
  tensor.name = cursor.Text();
  const uint32_t dimensions = cursor.Scalar<uint32_t>();
  if (dimensions == 0 || dimensions > kMaxDimensions) {
    cursor.Fail(absl::DataLossError(
        fmt::format("{}: tensor {} has {} dimensions", path, tensor.name, dimensions)));
    return tensor;
  }
  int64_t elements = 1;
  for (uint32_t i = 0; i < dimensions; ++i) {
    const int64_t dim = cursor.Scalar<int64_t>();
    if (cursor.ok() && (dim <= 0 || __builtin_mul_overflow(elements, dim, &elements))) {
      cursor.Fail(absl::DataLossError(
          fmt::format("{}: tensor {} has an impossible dimension {}", path, tensor.name, dim)));
    }
    tensor.shape.insert(tensor.shape.begin(), dim);
  }
  tensor.type = cursor.Scalar<uint32_t>();
  tensor.begin = cursor.Scalar<uint64_t>();
  return tensor;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(auto mapped, MappedFile::Open(path));
  std::unique_ptr<GgufFile> file(new GgufFile(std::move(mapped)));
  TANDEM_RETURN_IF_ERROR(file->Parse());
  return file;
}

absl::Status GgufFile::Parse() {
  Cursor cursor(*file_);
  const uint32_t magic = cursor.Scalar<uint32_t>();
  if (magic != kMagic) return InvalidArgument("{} is not a GGUF file", path());
  const uint32_t version = cursor.Scalar<uint32_t>();
  if (version != 2 && version != 3) {
    return InvalidArgument("{}: GGUF version {} is not supported (2 and 3, little endian, are)",
                           path(), version);
  }
  const uint64_t tensor_count = cursor.Scalar<uint64_t>();
  const uint64_t key_count = cursor.Scalar<uint64_t>();
  for (uint64_t i = 0; i < key_count && cursor.ok(); ++i) {
    const std::string key = cursor.Text();
    GgufValue value = cursor.Value(key);
    if (cursor.ok()) metadata_.insert_or_assign(key, std::move(value));
  }
  for (uint64_t i = 0; i < tensor_count && cursor.ok(); ++i) {
    tensors_.push_back(ReadTensorInfo(cursor, path()));
  }
  TANDEM_RETURN_IF_ERROR(cursor.status());
  TANDEM_RETURN_IF_ERROR(file_->CheckWhole());
  return PlaceTensors(cursor.position());
}

absl::Status GgufFile::PlaceTensors(uint64_t header_end) {
  uint64_t alignment = 32;
  if (HasKey("general.alignment")) {
    TANDEM_ASSIGN_OR_RETURN(const int64_t value, Integer("general.alignment"));
    if (value <= 0 || value % 8 != 0 || value > (1 << 20)) {
      return absl::DataLossError(fmt::format("{}: general.alignment is {}", path(), value));
    }
    alignment = static_cast<uint64_t>(value);
  }
  const uint64_t data_start = (header_end + alignment - 1) / alignment * alignment;
  for (GgufTensor& tensor : tensors_) {
    if (!index_.emplace(tensor.name, index_.size()).second) {
      return absl::DataLossError(fmt::format("{}: tensor {} is there twice", path(), tensor.name));
    }
    const uint64_t offset = tensor.begin;
    if (__builtin_add_overflow(offset, data_start, &tensor.begin)) tensor.begin = UINT64_MAX;
    const GgufBlockType* type = FindGgufBlockType(tensor.type);
    if (type == nullptr) continue;
    const uint64_t elements = static_cast<uint64_t>(NumElements(tensor.shape));
    if (static_cast<uint64_t>(tensor.shape.back()) % type->block_elements != 0) {
      return absl::DataLossError(
          fmt::format("{}: tensor {} {} cannot be {}: rows are not a multiple of {}", path(),
                      tensor.name, ShapeText(tensor.shape), type->name, type->block_elements));
    }
    const uint64_t blocks = elements / type->block_elements;
    if (__builtin_mul_overflow(blocks, type->block_bytes, &tensor.bytes) ||
        tensor.begin > file_->size() || tensor.bytes > file_->size() - tensor.begin) {
      return absl::DataLossError(fmt::format(
          "{}: tensor {} {} {} needs {} bytes at byte {} but the file has only {}; it is truncated "
          "or corrupt, fetch it again",
          path(), tensor.name, type->name, ShapeText(tensor.shape), tensor.bytes, tensor.begin,
          file_->size()));
    }
  }
  return absl::OkStatus();
}

const GgufTensor* GgufFile::Find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

template <typename T>
absl::StatusOr<T> GgufFile::Get(const std::string& key, const char* expected) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) {
    return MakeStatus(absl::StatusCode::kNotFound, "{}: metadata key {} is missing", path(), key);
  }
  if (const T* value = std::get_if<T>(&found->second); value != nullptr) return *value;
  return InvalidArgument("{}: metadata key {} is not {}", path(), key, expected);
}

absl::StatusOr<int64_t> GgufFile::Integer(const std::string& key) const {
  return Get<int64_t>(key, "an integer");
}
absl::StatusOr<double> GgufFile::Number(const std::string& key) const {
  if (const absl::StatusOr<int64_t> integer = Get<int64_t>(key, ""); integer.ok()) {
    return static_cast<double>(*integer);
  }
  return Get<double>(key, "a number");
}
absl::StatusOr<bool> GgufFile::Flag(const std::string& key) const {
  return Get<bool>(key, "a boolean");
}
absl::StatusOr<std::string> GgufFile::Text(const std::string& key) const {
  return Get<std::string>(key, "a string");
}
absl::StatusOr<std::vector<int64_t>> GgufFile::Integers(const std::string& key) const {
  return Get<std::vector<int64_t>>(key, "an array of integers");
}
absl::StatusOr<std::vector<std::string>> GgufFile::Texts(const std::string& key) const {
  return Get<std::vector<std::string>>(key, "an array of strings");
}

absl::StatusOr<std::vector<float>> GgufFile::Dequantize(const GgufTensor& tensor) const {
  const GgufBlockType* type = FindGgufBlockType(tensor.type);
  if (type == nullptr) {
    return MakeStatus(absl::StatusCode::kUnimplemented,
                      "{}: tensor {} has type {}, which cannot be read; F32, F16, BF16, Q4_0, Q4_1 "
                      "and Q8_0 can: fetch or convert the model in one of these",
                      path(), tensor.name, GgufTypeName(tensor.type));
  }
  std::vector<float> values(static_cast<size_t>(NumElements(tensor.shape)));
  const uint8_t* block = file_->data() + tensor.begin;
  for (size_t i = 0; i < values.size(); i += type->block_elements) {
    type->dequantize(block, values.data() + i);
    block += type->block_bytes;
  }
  TANDEM_RETURN_IF_ERROR(file_->CheckWhole());
  return values;
}

namespace {

constexpr size_t kBlock = 32;

float LoadFloat16(const uint8_t* bytes) {
  uint16_t bits = 0;
  std::memcpy(&bits, bytes, sizeof(bits));
  return FromFloat16(bits);
}

void FromF32(const uint8_t* block, float* value) { std::memcpy(value, block, sizeof(float)); }

void FromF16(const uint8_t* block, float* value) { *value = LoadFloat16(block); }

void FromStoredBf16(const uint8_t* block, float* value) {
  Bf16 bits = 0;
  std::memcpy(&bits, block, sizeof(bits));
  *value = FromBf16(bits);
}

// f16 d, 16 bytes: low nibbles are values 0-15, high nibbles 16-31; value = d * (q - 8).
void FromQ40(const uint8_t* block, float* values) {
  const float d = LoadFloat16(block);
  for (size_t i = 0; i < kBlock / 2; ++i) {
    const int byte = block[2 + i];
    values[i] = static_cast<float>((byte & 15) - 8) * d;
    values[i + kBlock / 2] = static_cast<float>((byte >> 4) - 8) * d;
  }
}

// f16 d, f16 m, 16 bytes as above; value = d * q + m.
void FromQ41(const uint8_t* block, float* values) {
  const float d = LoadFloat16(block);
  const float m = LoadFloat16(block + 2);
  for (size_t i = 0; i < kBlock / 2; ++i) {
    const int byte = block[4 + i];
    values[i] = static_cast<float>(byte & 15) * d + m;
    values[i + kBlock / 2] = static_cast<float>(byte >> 4) * d + m;
  }
}

// f16 d, 32 signed bytes; value = d * q.
void FromQ80(const uint8_t* block, float* values) {
  const float d = LoadFloat16(block);
  for (size_t i = 0; i < kBlock; ++i) {
    values[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * d;
  }
}

constexpr std::array<GgufBlockType, 6> kTypes = {{{0, "F32", 1, 4, FromF32},
                                                  {1, "F16", 1, 2, FromF16},
                                                  {2, "Q4_0", kBlock, 18, FromQ40},
                                                  {3, "Q4_1", kBlock, 20, FromQ41},
                                                  {8, "Q8_0", kBlock, 34, FromQ80},
                                                  {30, "BF16", 1, 2, FromStoredBf16}}};

// The other types, for messages only.
struct OtherType {
  uint32_t type;
  const char* name;
};
constexpr std::array<OtherType, 24> kOtherTypes = {
    {{6, "Q5_0"},   {7, "Q5_1"},    {9, "Q8_1"},   {10, "Q2_K"},    {11, "Q3_K"},   {12, "Q4_K"},
     {13, "Q5_K"},  {14, "Q6_K"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"},
     {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"}, {24, "I8"},
     {25, "I16"},   {26, "I32"},    {27, "I64"},   {28, "F64"},     {29, "IQ1_M"},  {34, "TQ1_0"}}};

}  // namespace

const GgufBlockType* FindGgufBlockType(uint32_t type) {
  for (const GgufBlockType& entry : kTypes) {
    if (entry.type == type) return &entry;
  }
  return nullptr;
}

std::string GgufTypeName(uint32_t type) {
  if (const GgufBlockType* known = FindGgufBlockType(type); known != nullptr) return known->name;
  for (const OtherType& other : kOtherTypes) {
    if (other.type == type) return other.name;
  }
  return fmt::format("number {}", type);
}

}  // namespace tandem
