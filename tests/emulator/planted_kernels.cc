#include "tests/emulator/planted_kernels.h"

#include "common/device/cuda/kernel.h"

namespace tandem::testing {
namespace {

__device__ void Pass(Between between) {
  uint32_t r[4] = {}, b[2] = {};
  float d[4] = {};
  switch (between) {
    case Between::kNothing:
      return;
    case Between::kShuffle:
      ShuffleXor(uint32_t{1}, 1);
      return;
    case Between::kLdMatrix:
      LdMatrix4(r, SharedMemory());  // where nobody writes
      return;
    case Between::kMma:
      MmaBf16(d, r, b);
      return;
    case Between::kSyncWarp:
      SyncWarp();
      return;
    case Between::kSyncThreads:
      __syncthreads();
      return;
  }
}

__device__ unsigned Neighbour(bool next_warp) {
  return next_warp ? (threadIdx.x + 32) % blockDim.x
                   : threadIdx.x / 32 * 32 + (threadIdx.x + 1) % 32;
}

__global__ void WriteThenRead(Between between, bool next_warp, int* out) {
  TANDEM_SHARED(values, int[64]);
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  Pass(between);
  out[threadIdx.x] = values[Neighbour(next_warp)];
}

__global__ void ReadThenWrite(Between between, bool next_warp, int* out) {
  TANDEM_SHARED(values, int[64]);
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  out[threadIdx.x] = values[Neighbour(next_warp)];
  Pass(between);
  values[threadIdx.x] = 0;
}

__global__ void LoadMatrix(bool barrier, uint32_t* out) {
  TANDEM_SHARED(rows, uint16_t[32 * 8]);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 32 * 8; ++i) rows[i] = static_cast<uint16_t>(i);
  }
  if (barrier) SyncWarp();
  uint32_t r[4];
  LdMatrix4(r, rows + threadIdx.x * 8);
  out[threadIdx.x] = r[0];
}

// A lane overwrites the elements that it got, of a row that another one named.
__global__ void OverwriteMatrix(bool barrier) {
  TANDEM_SHARED(rows, uint16_t[32 * 8]);
  for (int i = 0; i < 8; ++i) rows[threadIdx.x * 8 + static_cast<unsigned>(i)] = 1;
  SyncWarp();
  uint32_t r[4];
  LdMatrix4(r, rows + threadIdx.x * 8);
  if (barrier) SyncWarp();
  reinterpret_cast<uint32_t*>(rows)[threadIdx.x] = r[0];
}

__global__ void CopyThenReadOther(const int* in, bool barrier, int* out) {
  auto* const values = reinterpret_cast<int*>(SharedMemory());
  CopyAsync16(values + threadIdx.x * 4, in + threadIdx.x * 4);
  CopyCommit();
  CopyWait<0>();
  if (barrier) SyncWarp();
  out[threadIdx.x] = values[(threadIdx.x + 1) % 32 * 4];
}

__global__ void ReadThenCopy(const int* in, bool barrier, int* out) {
  auto* const values = reinterpret_cast<int*>(SharedMemory());
  for (int i = 0; i < 4; ++i) values[threadIdx.x * 4 + static_cast<unsigned>(i)] = i;
  SyncWarp();
  out[threadIdx.x] = values[(threadIdx.x + 1) % 32 * 4];
  if (barrier) SyncWarp();
  CopyAsync16(values + threadIdx.x * 4, in + threadIdx.x * 4);
  CopyCommit();
  CopyWait<0>();
}

__global__ void KeepInShared(float* out) {
  TANDEM_SHARED(kept, float[32]);
  auto* const rest = reinterpret_cast<float*>(SharedMemory());
  float* const mine = out + blockIdx.x * 64 + threadIdx.x;
  mine[0] = kept[threadIdx.x];
  mine[32] = rest[threadIdx.x];
  kept[threadIdx.x] = rest[threadIdx.x] = 1.0f;
}

__global__ void IndexStatic(int index, bool writes, float* out) {
  TANDEM_SHARED(kept, float[32]);
  if (threadIdx.x != 0) return;
  writes ? kept[index] = 1.0f : out[0] = kept[index];
}

__global__ void IndexDynamic(int index, bool writes, float* out) {
  auto* const rest = reinterpret_cast<float*>(SharedMemory());
  if (threadIdx.x != 0) return;
  writes ? rest[index] = 1.0f : out[0] = rest[index];
}

__global__ void ComeBy(unsigned* next, unsigned* order, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    order[(*next)++] = threadIdx.x;
    ShuffleXor(uint32_t{1}, 1);
  }
}

__global__ void AddNotAtomically(int* number) {
  const int before = *number;
  __syncthreads();
  if (threadIdx.x == 0) *number = before + 1;
}

__global__ void AddAtomically(uint32_t* sum, uint32_t* found) {
  AtomicAdd(sum, uint32_t{1});
  found[threadIdx.x] = *sum;
}

__global__ void AddInShared(bool barrier, uint32_t* out) {
  TANDEM_SHARED(sum, uint32_t);
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  AtomicAdd(&sum, uint32_t{1});
  if (barrier) __syncthreads();
  out[threadIdx.x] = sum;
}

__global__ void MeetAtTwoPlaces() {
  if (threadIdx.x < 16) {
    ShuffleXor(uint32_t{1}, 1);
  } else {
    SyncWarp();
  }
}

__global__ void ReturnBeforeOthers() {
  if (threadIdx.x < 16) return;
  SyncWarp();
}

__global__ void HasStatic(unsigned bytes) {
  TANDEM_SHARED(array, unsigned char[16 << 10]);
  if (threadIdx.x == 0) array[0] = SharedMemory()[bytes - 1] = 0;
}

__global__ void HasNoStatic(unsigned bytes) {
  if (threadIdx.x == 0) SharedMemory()[bytes - 1] = 0;
}

}  // namespace

std::vector<int> ReadNeighbours(Between between, bool next_warp) {
  std::vector<int> out(64);
  Launch(WriteThenRead, {.threads = 64, .shared_bytes = 1024}, nullptr, between, next_warp,
         out.data());
  return out;
}

void OverwriteAfterRead(Between between, bool next_warp) {
  std::vector<int> out(64);
  Launch(ReadThenWrite, {.threads = 64, .shared_bytes = 1024}, nullptr, between, next_warp,
         out.data());
}

void LoadMatrixOf(bool barrier) {
  std::vector<uint32_t> out(32);
  Launch(LoadMatrix, {.threads = 32}, nullptr, barrier, out.data());
}

void OverwriteMatrixOf(bool barrier) { Launch(OverwriteMatrix, {.threads = 32}, nullptr, barrier); }

void ReadCopied(bool barrier) {
  alignas(16) const int in[128] = {};
  std::vector<int> out(32);
  Launch(CopyThenReadOther, {.threads = 32, .shared_bytes = 512}, nullptr, in, barrier, out.data());
}

void CopyOverWhatIsRead(bool barrier) {
  alignas(16) const int in[128] = {};
  std::vector<int> out(32);
  Launch(ReadThenCopy, {.threads = 32, .shared_bytes = 512}, nullptr, in, barrier, out.data());
}

std::vector<float> FoundByBlocks(unsigned blocks) {
  std::vector<float> out(blocks * 64);
  Launch(KeepInShared, {.grid_x = blocks, .threads = 32, .shared_bytes = 128}, nullptr, out.data());
  return out;
}

void AccessStatic(int index, bool writes) {
  float out = 0;
  Launch(IndexStatic, {.threads = 32}, nullptr, index, writes, &out);
}

void AccessDynamic(int index, bool writes) {
  float out = 0;
  Launch(IndexDynamic, {.threads = 32, .shared_bytes = 128}, nullptr, index, writes, &out);
}

std::vector<unsigned> OrderOfThreads(unsigned threads, int rounds) {
  unsigned next = 0;
  std::vector<unsigned> order(threads * static_cast<unsigned>(rounds));
  Launch(ComeBy, {.threads = threads}, nullptr, &next, order.data(), rounds);
  return order;
}

int AddedByBlocks(unsigned blocks) {
  int number = 0;
  Launch(AddNotAtomically, {.grid_x = blocks, .threads = 32}, nullptr, &number);
  return number;
}

std::vector<uint32_t> FoundAfterAtomicAdd() {
  uint32_t sum = 0;
  std::vector<uint32_t> found(64);
  Launch(AddAtomically, {.threads = 64}, nullptr, &sum, found.data());
  return found;
}

uint32_t SumInShared(bool barrier) {
  std::vector<uint32_t> out(64);
  Launch(AddInShared, {.threads = 64}, nullptr, barrier, out.data());
  return out[0];
}

void MeetElsewhere() { Launch(MeetAtTwoPlaces, {.threads = 32}, nullptr); }
void ReturnEarly() { Launch(ReturnBeforeOthers, {.threads = 32}, nullptr); }

void LaunchWithShared(CudaStream stream, unsigned dynamic_bytes, bool has_static) {
  const LaunchShape shape = {.threads = 32, .shared_bytes = dynamic_bytes};
  has_static ? Launch(HasStatic, shape, stream, dynamic_bytes)
             : Launch(HasNoStatic, shape, stream, dynamic_bytes);
}

}  // namespace tandem::testing
