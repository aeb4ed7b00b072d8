// Kernels with a mistake each, compiled as all kernels are for the emulator, and what is right
// beside it.
#pragma once

#include <cstdint>
#include <vector>

#include "common/device/cuda/launch.h"

namespace tandem::testing {

// What a thread does between a write of shared memory and the read of its neighbour's.
enum class Between { kNothing, kShuffle, kLdMatrix, kMma, kSyncWarp, kSyncThreads };
// The neighbour is the next lane of the warp, or the same lane of the next warp.
std::vector<int> ReadNeighbours(Between between, bool next_warp);
// The other way round: reads the neighbour's, then overwrites its own.
void OverwriteAfterRead(Between between, bool next_warp);
// Lane 0 writes what all lanes load with LdMatrix; with a barrier, or without.
void LoadMatrixOf(bool barrier);
// Lanes overwrite what they loaded with LdMatrix, of rows that others named.
void OverwriteMatrixOf(bool barrier);
// Copies asynchronously and waits; whoever reads is another thread, after a barrier or not.
void ReadCopied(bool barrier);
void CopyOverWhatIsRead(bool barrier);

// What each block finds in its shared memory: 32 floats of a static array, then 32 of the rest.
std::vector<float> FoundByBlocks(unsigned blocks);
// Thread 0 accesses the element `index` of a static array of 32 floats, or of 32 that are not.
void AccessStatic(int index, bool writes);
void AccessDynamic(int index, bool writes);

// The threads in the order in which they come by, `rounds` times each; a shuffle follows each time.
std::vector<unsigned> OrderOfThreads(unsigned threads, int rounds);
// Blocks that add 1 to a number, not atomically, with a barrier between read and write.
int AddedByBlocks(unsigned blocks);
// What each of 64 threads finds after its AtomicAdd of 1.
std::vector<uint32_t> FoundAfterAtomicAdd();
// An atomic addition to shared memory, and a read of the sum by each thread.
uint32_t SumInShared(bool barrier);

// Half a warp shuffles, the other half is at SyncWarp; or has returned.
void MeetElsewhere();
void ReturnEarly();

// A kernel with 16 KiB in a static array and so many bytes that are not.
void LaunchWithShared(CudaStream stream, unsigned dynamic_bytes, bool has_static);

}  // namespace tandem::testing
