#include "controller/store/event_file.h"

#include <bit>

#include "controller/store/crc32c.h"

namespace tandem {
namespace {

// The few rules of protobuf's wire format that an Event needs.
enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <typename Integer>
std::string LittleEndian(Integer value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(Integer); ++i) {
    bytes.push_back(static_cast<char>((value >> (8 * i)) & 0xFFu));
  }
  return bytes;
}

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>((value & 0x7F) | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

std::string Tag(uint32_t field, WireType type) { return Varint((field << 3) | type); }

std::string BytesField(uint32_t field, const std::string& bytes) {
  return Tag(field, kBytes) + Varint(bytes.size()) + bytes;
}
std::string DoubleField(uint32_t field, double value) {
  return Tag(field, kFixed64) + LittleEndian(std::bit_cast<uint64_t>(value));
}
std::string FloatField(uint32_t field, float value) {
  return Tag(field, kFixed32) + LittleEndian(std::bit_cast<uint32_t>(value));
}

}  // namespace

std::string TfRecord(const std::string& data) {
  const std::string length = LittleEndian(static_cast<uint64_t>(data.size()));
  return length + LittleEndian(MaskedCrc32c(length)) + data + LittleEndian(MaskedCrc32c(data));
}

std::string FileVersionEvent(double wall_time_seconds) {
  return DoubleField(1, wall_time_seconds) + BytesField(3, "brain.Event:2");
}

std::string SessionStartEvent(double wall_time_seconds, int64_t step) {
  constexpr uint64_t kStart = 1;
  return DoubleField(1, wall_time_seconds) + Tag(2, kVarint) + Varint(static_cast<uint64_t>(step)) +
         BytesField(7, Tag(1, kVarint) + Varint(kStart));
}

std::string ScalarsEvent(double wall_time_seconds, int64_t step, const Metrics& metrics) {
  std::string summary;
  for (const auto& [name, value] : metrics) {
    summary += BytesField(1, BytesField(1, name) + FloatField(2, static_cast<float>(value)));
  }
  return DoubleField(1, wall_time_seconds) + Tag(2, kVarint) + Varint(static_cast<uint64_t>(step)) +
         BytesField(5, summary);
}

}  // namespace tandem
