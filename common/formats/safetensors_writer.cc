#include "common/formats/safetensors_writer.h"

#include <nlohmann/json.hpp>

#include "common/base/status_macros.h"

namespace tandem {

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
