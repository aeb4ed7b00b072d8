#include "controller/store/post_mortem/blackbox.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/status.h"
#include "common/formats/file_io.h"
#include "common/process/local_socket.h"
#include "controller/store/run_file.h"

namespace tandem {
namespace {

constexpr char kMagic[8] = {'T', 'N', 'D', 'M', 'B', 'O', 'X', '1'};

// The layout of the file: one header, the slots of both rings, and a copy of the newest start,
// which the rings may push out. Numbers in the host's order: the file is read where it was written,
// or on a machine like it.
struct BlackboxSlot {
  uint64_t checksum;  // of all that follows; 0 in a slot that was never written
  uint64_t seq;
  int64_t time_us;
  int64_t step;
  uint8_t kind;
  uint8_t worker_bytes;
  uint8_t text_bytes;
  uint8_t code;
  char worker[20];
  char text[64];
  char unused[8];
};
static_assert(sizeof(BlackboxSlot) == 128);

constexpr size_t kSlots = kBlackboxBytes / sizeof(BlackboxSlot) - 1;  // the first has the header
constexpr size_t kMarkSlots = 127;                                    // starts, phases, ends
constexpr size_t kCallSlots = kSlots - kMarkSlots - 1;
constexpr size_t kStartSlot = kSlots - 1;

bool IsCallKind(BlackboxKind kind) {
  return kind == BlackboxKind::kCall || kind == BlackboxKind::kAnswer;
}

// FNV-1a: no protection against anybody, only against half a record.
uint64_t HashOf(std::string_view bytes) {
  uint64_t hash = 14695981039346656037u;
  for (const char byte : bytes) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211u;
  }
  return hash;
}

uint64_t ChecksumOf(const BlackboxSlot& slot) {
  const std::string_view bytes(reinterpret_cast<const char*>(&slot), sizeof(slot));
  const uint64_t hash = HashOf(bytes.substr(sizeof(slot.checksum)));
  return hash == 0 ? 1 : hash;
}

// Tells apart runs whose ids begin with the same 64 bytes.
std::string DigestOf(const std::string& run_id) { return fmt::format("{:016x}", HashOf(run_id)); }

// Slot `i` behind the header, where calls follow marks.
BlackboxSlot SlotAt(const char* bytes, size_t i) {
  BlackboxSlot slot;
  std::memcpy(&slot, bytes + (i + 1) * sizeof(slot), sizeof(slot));
  return slot;
}

bool IsWhole(const BlackboxSlot& slot) {
  return slot.checksum != 0 && slot.checksum == ChecksumOf(slot) &&
         slot.worker_bytes <= sizeof(slot.worker) && slot.text_bytes <= sizeof(slot.text);
}

absl::StatusOr<char*> MapBlackbox(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return RunFileError(path, "opening", errno);
  if (fchmod(fd.get(), 0600) != 0) return RunFileError(path, "closing to others", errno);
  struct stat found;
  if (fstat(fd.get(), &found) != 0) return RunFileError(path, "looking at", errno);
  if (found.st_size != static_cast<off_t>(kBlackboxBytes) && ftruncate(fd.get(), 0) != 0) {
    return RunFileError(path, "emptying", errno);
  }
  // Without its blocks, a full disk would end the process when it writes into the mapping.
  if (const int error = posix_fallocate(fd.get(), 0, kBlackboxBytes); error != 0) {
    return RunFileError(path, "allocating", error);
  }
  void* const bytes =
      mmap(nullptr, kBlackboxBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (bytes == MAP_FAILED) return RunFileError(path, "mapping", errno);
  return static_cast<char*>(bytes);
}

void CopyText(std::string_view text, char* to, size_t most, uint8_t* bytes) {
  *bytes = static_cast<uint8_t>(std::min(text.size(), most));
  std::memcpy(to, text.data(), *bytes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Blackbox>> Blackbox::Open(const std::string& path,
                                                         const std::string& run_id,
                                                         Clock& clock) {
  TANDEM_ASSIGN_OR_RETURN(char* const bytes, MapBlackbox(path));
  std::unique_ptr<Blackbox> box(new Blackbox(bytes, clock));
  box->Note({.kind = BlackboxKind::kStart}, DigestOf(run_id), run_id);
  return box;
}

Blackbox::Blackbox(char* bytes, Clock& clock) : clock_(clock), bytes_(bytes) {
  const MutexLock lock(ring_mutex_);
  if (std::memcmp(bytes_, kMagic, sizeof(kMagic)) != 0) {
    std::memset(bytes_, 0, kBlackboxBytes);
    std::memcpy(bytes_, kMagic, sizeof(kMagic));
  }
  uint64_t newest_mark = 0, newest_call = 0;
  for (size_t i = 0; i < kSlots; ++i) {
    const BlackboxSlot slot = SlotAt(bytes_, i);
    if (!IsWhole(slot)) continue;
    seq_ = std::max(seq_, slot.seq);
    if (i == kStartSlot) continue;
    uint64_t& newest = i < kMarkSlots ? newest_mark : newest_call;
    if (slot.seq < newest) continue;
    newest = slot.seq;
    (i < kMarkSlots ? next_mark_ : next_call_) = i < kMarkSlots ? i + 1 : i + 1 - kMarkSlots;
  }
}

Blackbox::~Blackbox() {
  NoteEnd(RunOutcome::kUnknown, "");
  munmap(bytes_, kBlackboxBytes);
}

void Blackbox::NotePhase(int64_t step, std::string_view phase) {
  Note({.step = step, .kind = BlackboxKind::kPhase}, "", phase);
}

void Blackbox::NoteCall(std::string_view worker, std::string_view method) {
  Note({.step = -1, .kind = BlackboxKind::kCall}, worker, method);
}

void Blackbox::NoteAnswer(std::string_view worker, std::string_view method, absl::StatusCode code) {
  Note({.step = -1, .kind = BlackboxKind::kAnswer, .code = static_cast<int>(code)}, worker, method);
}

void Blackbox::NoteEnd(RunOutcome outcome, std::string_view error) {
  const MutexLock lock(ring_mutex_);
  if (std::exchange(ended_, true)) return;
  Write({.step = -1, .kind = BlackboxKind::kEnd, .code = static_cast<int>(outcome)}, "", error);
}

void Blackbox::Note(BlackboxRecord record, std::string_view worker, std::string_view text) {
  const MutexLock lock(ring_mutex_);
  Write(std::move(record), worker, text);
}

void Blackbox::Write(BlackboxRecord record, std::string_view worker, std::string_view text) {
  if (record.step >= 0) step_ = record.step;  // calls belong to the step of the last phase
  BlackboxSlot slot;
  std::memset(&slot, 0, sizeof(slot));
  slot.seq = ++seq_;
  slot.time_us = absl::ToUnixMicros(clock_.WallNow());
  slot.step = step_;
  slot.kind = static_cast<uint8_t>(record.kind);
  slot.code = static_cast<uint8_t>(record.code);
  CopyText(worker, slot.worker, sizeof(slot.worker), &slot.worker_bytes);
  CopyText(text, slot.text, sizeof(slot.text), &slot.text_bytes);
  slot.checksum = ChecksumOf(slot);
  const bool call = IsCallKind(record.kind);
  size_t& next = call ? next_call_ : next_mark_;
  const size_t at = next % (call ? kCallSlots : kMarkSlots);
  next = at + 1;
  std::memcpy(bytes_ + (1 + (call ? kMarkSlots : 0) + at) * sizeof(slot), &slot, sizeof(slot));
  if (record.kind == BlackboxKind::kStart) {
    std::memcpy(bytes_ + (1 + kStartSlot) * sizeof(slot), &slot, sizeof(slot));
  }
}

bool IsStartOf(const BlackboxRecord& record, const std::string& run_id) {
  return record.kind == BlackboxKind::kStart && record.worker == DigestOf(run_id);
}

absl::StatusOr<std::vector<BlackboxRecord>> ReadBlackbox(const std::string& path) {
  // A pipe of this name is read as an empty file, and not waited for.
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid() && errno == ENOENT) {
    return MakeStatus(absl::StatusCode::kNotFound, "{} does not exist", path);
  }
  if (!fd.valid()) return RunFileError(path, "opening", errno);
  std::vector<char> bytes(kBlackboxBytes);
  TANDEM_RETURN_IF_ERROR(ReadRunFile(fd.get(), path, bytes, 0));
  if (std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0) {
    return MakeStatus(absl::StatusCode::kDataLoss, "{} is no blackbox of a run", path);
  }
  std::vector<BlackboxRecord> records;
  for (size_t i = 0; i < kSlots; ++i) {
    const BlackboxSlot slot = SlotAt(bytes.data(), i);
    if (!IsWhole(slot)) continue;
    records.push_back({.seq = slot.seq,
                       .time_us = slot.time_us,
                       .step = slot.step,
                       .kind = static_cast<BlackboxKind>(slot.kind),
                       .code = slot.code,
                       .worker = std::string(slot.worker, slot.worker_bytes),
                       .text = std::string(slot.text, slot.text_bytes)});
  }
  std::sort(records.begin(), records.end(),
            [](const auto& a, const auto& b) { return a.seq < b.seq; });
  // The newest start is there twice while its ring still has it.
  const auto twice = std::unique(records.begin(), records.end(),
                                 [](const auto& a, const auto& b) { return a.seq == b.seq; });
  records.erase(twice, records.end());
  return records;
}

}  // namespace tandem
