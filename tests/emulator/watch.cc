#include "tests/emulator/watch.h"

#include <vector>

#include <fmt/format.h>

namespace tandem::emulator {
namespace {

constexpr size_t kCellBytes = 2;  // bf16 is the smallest that kernels keep there
constexpr uint16_t kAtomically = 0xffff;
constexpr uint8_t kSeveral = 0xff;
constexpr uint32_t kNotYet = 0xffffffff;  // the round of a copy that has not been waited for

// What is known of two bytes: the last write, and the reads of the same round of the block. Of
// several reads it is enough to know that there are several: a write that none of the barriers
// separates from one of them is unordered whatever the others are.
struct Cell {
  uint32_t write_round = 0, read_round = 0;
  uint16_t write_warp_round = 0, read_warp_round = 0;
  uint16_t writer = 0;
  uint8_t reading_warp = 0, reading_lane = 0;
};
static_assert(sizeof(Cell) == 16);

struct Watch {
  uintptr_t begin = 0;
  size_t bytes = 0;  // 0: nothing is watched
  const SharedMemorySlots* memory = nullptr;
  std::vector<Cell> cells;
};
thread_local Watch watch;

bool IsUnorderedAfterWrite(const Cell& cell, const Moment& now) {
  if (cell.write_round == kNotYet) return true;
  if (cell.write_round != now.block_round) return false;
  if (cell.writer == kAtomically || cell.writer / 32 != now.thread / 32) return true;
  return cell.writer != now.thread && cell.write_warp_round == now.warp_round;
}

bool IsUnorderedAfterRead(const Cell& cell, const Moment& now) {
  if (cell.read_round != now.block_round) return false;
  if (cell.reading_warp == kSeveral || cell.reading_warp != now.thread / 32) return true;
  return cell.read_warp_round == now.warp_round && cell.reading_lane != now.thread % 32;
}

void KeepRead(Cell& cell, const Moment& now) {
  const auto warp = static_cast<uint8_t>(now.thread / 32);
  const auto lane = static_cast<uint8_t>(now.thread % 32);
  const bool first = cell.read_round != now.block_round;
  if (!first && (cell.reading_warp == kSeveral || cell.reading_warp != warp)) {
    cell.reading_warp = kSeveral;
  } else if (first || cell.read_warp_round != now.warp_round) {
    cell.read_round = now.block_round;
    cell.read_warp_round = now.warp_round;
    cell.reading_warp = warp;
    cell.reading_lane = lane;
  } else if (cell.reading_lane != lane) {
    cell.reading_lane = kSeveral;
  }
}

void KeepWrite(Cell& cell, const Moment& now, Access access) {
  cell.write_round = access == Access::kStartCopy ? kNotYet : now.block_round;
  cell.write_warp_round = now.warp_round;
  cell.writer = access == Access::kAtomic ? kAtomically : static_cast<uint16_t>(now.thread);
}

const char* NameOf(Access access) {
  switch (access) {
    case Access::kRead:
      return "reads";
    case Access::kWrite:
      return "writes";
    case Access::kAtomic:
      return "adds to";
    case Access::kStartCopy:
      return "copies asynchronously to";
    case Access::kEndCopy:
      break;
  }
  return "has copied to";
}

std::string WriterOf(const Cell& cell) {
  if (cell.writer == kAtomically) return "several threads may have added to it";
  if (cell.write_round == kNotYet) {
    return fmt::format("thread {} copies to it and has not waited for that copy", cell.writer);
  }
  return fmt::format("thread {} wrote it", cell.writer);
}

std::string ReaderOf(const Cell& cell) {
  if (cell.reading_warp == kSeveral) return "several warps read it";
  if (cell.reading_lane == kSeveral) {
    return fmt::format("several lanes of warp {} read it", cell.reading_warp);
  }
  return fmt::format("thread {} read it", cell.reading_warp * 32 + cell.reading_lane);
}

[[noreturn]] void FailRace(size_t offset, const Moment& now, Access access, std::string before) {
  FailKernel(fmt::format("thread {} {} {}, and {} with no barrier in between", now.thread,
                         NameOf(access), watch.memory->Describe(offset), before));
}

void Check(Cell& cell, size_t offset, const Moment& now, Access access) {
  // Who touched it since the copy began was told so then.
  if (access == Access::kEndCopy) return KeepWrite(cell, now, access);
  const bool both_atomic = access == Access::kAtomic && cell.writer == kAtomically;
  if (!both_atomic && IsUnorderedAfterWrite(cell, now)) {
    FailRace(offset, now, access, WriterOf(cell));
  }
  if (access == Access::kRead) return KeepRead(cell, now);
  if (IsUnorderedAfterRead(cell, now)) FailRace(offset, now, access, ReaderOf(cell));
  KeepWrite(cell, now, access);
}

void NoteWatched(size_t offset, size_t bytes, Access access) {
  const Moment now = CurrentMoment();
  const size_t slot_bytes = watch.memory->slot_bytes();
  if (offset / slot_bytes != static_cast<size_t>(now.slot)) {
    FailKernel(
        fmt::format("thread {} {} the shared memory of another block", now.thread, NameOf(access)));
  }
  const size_t in_slot = offset % slot_bytes;
  if (!watch.memory->IsInArray(in_slot, bytes)) {
    FailKernel(fmt::format("thread {} {} {}", now.thread, NameOf(access),
                           watch.memory->Describe(in_slot)));
  }
  const size_t last = (offset + bytes - 1) / kCellBytes;
  for (size_t cell = offset / kCellBytes; cell <= last; ++cell) {
    Check(watch.cells[cell], cell * kCellBytes - offset + in_slot, now, access);
  }
}

}  // namespace

bool WatchesKernels() {
#ifdef TANDEM_WATCHED_KERNELS
  return true;
#else
  return false;
#endif
}

void BeginWatching(const SharedMemorySlots* memory) {
  watch.memory = memory;
  watch.begin = reinterpret_cast<uintptr_t>(memory->begin());
  watch.bytes = static_cast<size_t>(memory->slots()) * memory->slot_bytes();
  if (watch.cells.size() < watch.bytes / kCellBytes) watch.cells.resize(watch.bytes / kCellBytes);
}

void EndWatching() { watch.bytes = 0; }

void NoteAccess(const void* address, size_t bytes, Access access) {
  const size_t offset = reinterpret_cast<uintptr_t>(address) - watch.begin;
  if (offset < watch.bytes) NoteWatched(offset, bytes, access);
}

}  // namespace tandem::emulator

#ifdef TANDEM_WATCHED_KERNELS
// What -fsanitize=thread calls.
using tandem::emulator::Access;
using tandem::emulator::NoteAccess;

#define TANDEM_WATCHED(bytes)                                                           \
  void __tsan_read##bytes(void* at) { NoteAccess(at, bytes, Access::kRead); }           \
  void __tsan_write##bytes(void* at) { NoteAccess(at, bytes, Access::kWrite); }         \
  void __tsan_unaligned_read##bytes(void* at) { NoteAccess(at, bytes, Access::kRead); } \
  void __tsan_unaligned_write##bytes(void* at) { NoteAccess(at, bytes, Access::kWrite); }

extern "C" {
TANDEM_WATCHED(1)
TANDEM_WATCHED(2)
TANDEM_WATCHED(4)
TANDEM_WATCHED(8)
TANDEM_WATCHED(16)
void __tsan_read_range(void* at, size_t bytes) { NoteAccess(at, bytes, Access::kRead); }
void __tsan_write_range(void* at, size_t bytes) { NoteAccess(at, bytes, Access::kWrite); }
void __tsan_init() {}
void __tsan_func_entry(void* /*caller*/) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void* /*to*/, void* /*from*/) {}
void __tsan_vptr_read(void* /*from*/) {}
}
#undef TANDEM_WATCHED
#endif
