// Finds accesses to shared memory that no barrier orders, whatever order the threads ran in.
//
// Emulated kernels are compiled with GCC's -fsanitize=thread, which puts a call before each load
// and store, and those calls end here instead of in ThreadSanitizer's library
// (tests/emulator/CMakeLists.txt). An access is ordered before another one by __syncthreads for all
// threads of a block, and by SyncWarp for those of a warp; by nothing else. Shuffles, MmaBf16 and
// LdMatrix make lanes meet, but order no memory.
//
// In a build with a sanitizer kernels are not compiled so. There only what the emulator does itself
// for a kernel is looked at: LdMatrix, CopyAsync16 and AtomicAdd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/emulator/shared_memory.h"

namespace tandem::emulator {

// Whether kernels are compiled so.
bool WatchesKernels();

enum class Access { kRead, kWrite, kAtomic, kStartCopy, kEndCopy };

// A thread of a block and the barriers that it has passed.
struct Moment {
  int slot;    // the block's
  int thread;  // of the block
  uint32_t block_round;
  uint16_t warp_round;  // equal to another lane's if no SyncWarp lies between
};

// Accesses of the threads that this thread of the host emulates are watched from here until
// EndWatching. Rounds of blocks are never used again.
void BeginWatching(const SharedMemorySlots* memory);
void EndWatching();
// For what the emulator does on behalf of a kernel. Nothing outside of watched memory is looked at.
void NoteAccess(const void* address, size_t bytes, Access access);

// Defined by the emulator: who is running, and the end of the process with a message that names the
// kernel.
Moment CurrentMoment();
[[noreturn]] void FailKernel(const std::string& what);

}  // namespace tandem::emulator
