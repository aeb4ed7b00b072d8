#include "common/formats/safetensors.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>

#include <nlohmann/json.hpp>

#include "common/base/json_nesting.h"
#include "common/base/status.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

// The reference implementation's bound: a larger header is an attack or garbage.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

template <typename... Args>
absl::Status Corrupt(const std::string& path, fmt::format_string<Args...> format, Args&&... args) {
  return absl::DataLossError(fmt::format("{}: {}; fetch or write the file again", path,
                                         fmt::format(format, std::forward<Args>(args)...)));
}

// Elements of a shape, or -1 if a dimension is negative or the product overflows.
int64_t CheckedElements(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(count, dim, &count)) return -1;
  }
  return count;
}

bool IsNaturalList(const Json& value) {
  if (!value.is_array()) return false;
  return std::all_of(value.begin(), value.end(), [](const Json& v) {
    return v.is_number_unsigned() && v.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX);
  });
}

// Parses the header and refuses a tensor named twice, of which JSON parsers keep only the last.
absl::StatusOr<Json> ParseSafetensorsHeader(const std::string& path,
                                            const char* text,
                                            uint64_t bytes) {
  TANDEM_RETURN_IF_ERROR(Annotate(CheckJsonNesting({text, bytes}), path));
  std::set<std::string> names;
  std::string duplicate;
  auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1) {
      const std::string name = parsed.get<std::string>();
      if (!names.insert(name).second) duplicate = name;
    }
    return true;
  };
  Json header = Json::parse(text, text + bytes, watch, /*allow_exceptions=*/false);
  if (!header.is_object()) return Corrupt(path, "the header of {} bytes is not JSON", bytes);
  if (!duplicate.empty()) return Corrupt(path, "tensor {} is declared twice", duplicate);
  return header;
}

absl::StatusOr<SafetensorsTensor> ParseTensor(const std::string& path,
                                              const std::string& name,
                                              const Json& entry,
                                              uint64_t data_start) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() ||
      !entry.contains("shape") || !IsNaturalList(entry["shape"]) ||
      !entry.contains("data_offsets") || !IsNaturalList(entry["data_offsets"]) ||
      entry["data_offsets"].size() != 2) {
    return Corrupt(path, "the entry of tensor {} is malformed: {}", name,
                   entry.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  SafetensorsTensor tensor;
  tensor.name = name;
  const absl::StatusOr<DType> dtype = ParseDType(entry["dtype"].get<std::string>());
  if (!dtype.ok()) return Annotate(dtype.status(), fmt::format("{}: tensor {}", path, name));
  tensor.dtype = *dtype;
  tensor.shape = entry["shape"].get<std::vector<int64_t>>();
  const uint64_t begin = entry["data_offsets"][0].get<uint64_t>();
  const uint64_t end = entry["data_offsets"][1].get<uint64_t>();
  const int64_t elements = CheckedElements(tensor.shape);
  int64_t expected = 0;
  if (elements < 0 ||
      __builtin_mul_overflow(elements, static_cast<int64_t>(DTypeBytes(*dtype)), &expected)) {
    return Corrupt(path, "tensor {} has the impossible shape {}", name, ShapeText(tensor.shape));
  }
  if (end < begin || end - begin != static_cast<uint64_t>(expected)) {
    return Corrupt(path, "tensor {} {} {} needs {} bytes, its offsets [{}, {}) hold {}", name,
                   DTypeName(*dtype), ShapeText(tensor.shape), expected, begin, end,
                   end < begin ? 0 : end - begin);
  }
  tensor.begin = data_start + begin;
  tensor.end = data_start + end;
  return tensor;
}

// Bytes must follow each other from the header to the end of the file.
absl::Status CheckLayout(const std::string& path,
                         const std::vector<SafetensorsTensor>& tensors,
                         uint64_t data_start,
                         uint64_t file_bytes) {
  uint64_t position = data_start;
  const SafetensorsTensor* before = nullptr;
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.begin < position) {
      return Corrupt(path, "tensor {} at byte {} overlaps tensor {}, which ends at {}", tensor.name,
                     tensor.begin, before == nullptr ? "(header)" : before->name, position);
    }
    if (tensor.begin > position) {
      return Corrupt(path, "bytes [{}, {}) before tensor {} belong to no tensor", position,
                     tensor.begin, tensor.name);
    }
    if (tensor.end > file_bytes) {
      return Corrupt(path, "tensor {} needs bytes [{}, {}) but the file has only {} bytes",
                     tensor.name, tensor.begin, tensor.end, file_bytes);
    }
    position = tensor.end;
    before = &tensor;
  }
  if (position != file_bytes) {
    return Corrupt(path, "the tensors end at byte {} but the file has {} bytes", position,
                   file_bytes);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const SafetensorsFile>> SafetensorsFile::Open(
    const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(auto mapped, MappedFile::Open(path));
  std::shared_ptr<SafetensorsFile> file(new SafetensorsFile(std::move(mapped)));
  TANDEM_RETURN_IF_ERROR(file->ReadHeader());
  return std::shared_ptr<const SafetensorsFile>(std::move(file));
}

absl::Status SafetensorsFile::ReadHeader() {
  const uint64_t file_bytes = file_->size();
  uint64_t header_bytes = 0;
  if (file_bytes < sizeof(header_bytes)) {
    return Corrupt(path(), "{} bytes are too few for a safetensors header", file_bytes);
  }
  file_->ReadExactly(file_->data(), sizeof(header_bytes));
  std::memcpy(&header_bytes, file_->data(), sizeof(header_bytes));
  if (header_bytes > kMaxHeaderBytes) {
    return Corrupt(path(),
                   "a header of {} bytes is announced, at most {} are allowed: this is no "
                   "safetensors file",
                   header_bytes, kMaxHeaderBytes);
  }
  const uint64_t data_start = sizeof(header_bytes) + header_bytes;
  if (data_start > file_bytes) {
    return Corrupt(path(), "the header needs {} bytes but the file has only {} bytes", data_start,
                   file_bytes);
  }
  file_->ReadExactly(file_->data(), data_start);
  const char* text = reinterpret_cast<const char*>(file_->data()) + sizeof(header_bytes);
  // A copy: the parser must not see a byte twice that can change.
  const std::string copy(text, header_bytes);
  TANDEM_RETURN_IF_ERROR(file_->CheckWhole());
  TANDEM_ASSIGN_OR_RETURN(const Json header,
                          ParseSafetensorsHeader(path(), copy.data(), copy.size()));
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) return Corrupt(path(), "__metadata__ is not an object");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) return Corrupt(path(), "__metadata__ {} is not a string", key);
        metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    TANDEM_ASSIGN_OR_RETURN(SafetensorsTensor tensor, ParseTensor(path(), name, entry, data_start));
    tensors_.push_back(std::move(tensor));
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  TANDEM_RETURN_IF_ERROR(CheckLayout(path(), tensors_, data_start, file_bytes));
  for (size_t i = 0; i < tensors_.size(); ++i) index_[tensors_[i].name] = i;
  return file_->CheckWhole();
}

const SafetensorsTensor* SafetensorsFile::Find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

absl::StatusOr<TensorView> SafetensorsFile::View(const std::string& name) const {
  const SafetensorsTensor* tensor = Find(name);
  if (tensor == nullptr) {
    return MakeStatus(absl::StatusCode::kNotFound, "{} has no tensor {}", path(), name);
  }
  TensorView view;
  view.data = const_cast<uint8_t*>(file_->data()) + tensor->begin;
  view.dtype = tensor->dtype;
  view.shape = tensor->shape;
  return view;
}

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    const std::string& path,
    const std::vector<TensorDeclaration>& tensors,
    const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t position = 0;
  std::map<std::string, Slot> slots;
  for (const TensorDeclaration& tensor : tensors) {
    const uint64_t bytes =
        static_cast<uint64_t>(NumElements(tensor.shape)) * DTypeBytes(tensor.dtype);
    if (!slots.emplace(tensor.name, Slot{position, bytes, 0}).second) {
      return InvalidArgument("{}: tensor {} is declared twice", path, tensor.name);
    }
    header[tensor.name] = {{"dtype", DTypeName(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {position, position + bytes}}};
    position += bytes;
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  // Padding with spaces keeps the data 8-byte aligned, as the format recommends.
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t header_bytes = text.size();
  TANDEM_ASSIGN_OR_RETURN(auto file, AtomicFile::Create(path));
  std::unique_ptr<SafetensorsWriter> writer(new SafetensorsWriter(std::move(file)));
  writer->slots_ = std::move(slots);
  for (auto& [name, slot] : writer->slots_) slot.begin += sizeof(header_bytes) + header_bytes;
  TANDEM_RETURN_IF_ERROR(writer->file_->Reserve(sizeof(header_bytes) + header_bytes + position));
  TANDEM_RETURN_IF_ERROR(writer->file_->Append(&header_bytes, sizeof(header_bytes)));
  TANDEM_RETURN_IF_ERROR(writer->file_->Append(text.data(), text.size()));
  return writer;
}

absl::Status SafetensorsWriter::Write(const std::string& name,
                                      const void* data,
                                      uint64_t bytes,
                                      uint64_t byte_offset) {
  const auto found = slots_.find(name);
  if (found == slots_.end()) {
    return InvalidArgument("{}: tensor {} was not declared", file_->path(), name);
  }
  Slot& slot = found->second;
  if (byte_offset > slot.bytes || bytes > slot.bytes - byte_offset) {
    return InvalidArgument("{}: {} bytes at byte {} of tensor {} leave its {} bytes", file_->path(),
                           bytes, byte_offset, name, slot.bytes);
  }
  TANDEM_RETURN_IF_ERROR(file_->WriteAt(slot.begin + byte_offset, data, bytes));
  slot.written += bytes;
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::Finish() {
  for (const auto& [name, slot] : slots_) {
    if (slot.written != slot.bytes) {
      return FailedPrecondition("{}: tensor {} got {} of its {} bytes", file_->path(), name,
                                slot.written, slot.bytes);
    }
  }
  return file_->Commit();
}

}  // namespace tandem
