#include "controller/store/trackers/tensorboard_tracker.h"

#include <array>
#include <bit>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "common/process/process_identity.h"

namespace tandem {
namespace {

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value >> 1) ^ ((value & 1u) != 0 ? 0x82F63B78u : 0u);  // the polynomial, reflected
    }
    table[i] = value;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = MakeTable();

}  // namespace

uint32_t Crc32c(const std::string& bytes) {
  uint32_t crc = 0xFFFFFFFFu;
  for (const char byte : bytes) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xFFu];
  }
  return ~crc;
}

uint32_t MaskedCrc32c(const std::string& bytes) {
  const uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

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

namespace {

double Seconds(absl::Time time) { return absl::ToDoubleSeconds(time - absl::UnixEpoch()); }

// A new path in `dir`, which is created.
std::string NewEventPath(const std::string& dir, absl::Time now) {
  std::error_code ignored;  // a failure is reported when the file cannot be written
  std::filesystem::create_directories(dir, ignored);
  const std::string stem =
      fmt::format("{}/events.out.tfevents.{}.{}", dir, absl::ToUnixSeconds(now), HostName());
  std::string path = stem;
  // A process that is restarted within a second must not append to its predecessor's file.
  for (int i = 1; std::filesystem::exists(path, ignored); ++i) path = fmt::format("{}.{}", stem, i);
  return path;
}

}  // namespace

TensorBoardTracker::TensorBoardTracker(const std::string& dir, Clock& clock)
    : clock_(clock),
      path_(NewEventPath(dir, clock_.WallNow())),
      header_(TfRecord(FileVersionEvent(Seconds(clock_.WallNow())))),
      file_(path_, "TensorBoard events") {
  const MutexLock lock(file_mutex_);
  has_header_ = file_.Append(header_);
}

void TensorBoardTracker::Log(int64_t step, const Metrics& metrics) {
  const MutexLock lock(file_mutex_);
  Write(ScalarsEvent(Seconds(clock_.WallNow()), step, metrics));
}

absl::Status TensorBoardTracker::Rewind(int64_t step) {
  const MutexLock lock(file_mutex_);
  Write(SessionStartEvent(Seconds(clock_.WallNow()), step + 1));
  return absl::OkStatus();
}

absl::Status TensorBoardTracker::Flush() {
  const MutexLock lock(file_mutex_);
  return file_.Flush();
}

void TensorBoardTracker::Write(const std::string& event) {
  const std::string record = TfRecord(event);
  has_header_ = file_.Append(has_header_ ? record : header_ + record) || has_header_;
}

}  // namespace tandem
