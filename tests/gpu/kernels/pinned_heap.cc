#include "tests/gpu/kernels/pinned_heap.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>

#include <cuda_runtime_api.h>
#include <pthread.h>

#include "common/base/mutex.h"

namespace {

// One pinned allocation, cut into blocks of powers of two: a header of 64 bytes, then the user's.
// Freed blocks are used again for their size, never joined: tests take the same sizes again.
constexpr size_t kArenaBytes = size_t{1} << 30;
constexpr size_t kStackBytes = size_t{64} << 20;
constexpr size_t kHeader = 64;
constexpr int kClasses = 40;

struct Block {
  int size_class;
  Block* next;
};
static_assert(sizeof(Block) <= kHeader);

struct PinnedHeap {
  tandem::Mutex blocks_mutex;
  std::byte* begin = nullptr;  // set before other threads run
  size_t used ABSL_GUARDED_BY(blocks_mutex) = 0;
  std::array<Block*, kClasses> free ABSL_GUARDED_BY(blocks_mutex){};
};
constinit PinnedHeap heap;

void* Take(size_t bytes) {
  const tandem::MutexLock lock(heap.blocks_mutex);
  const int size_class = std::bit_width(std::max(bytes, size_t{1}) + kHeader - 1);
  const size_t whole = size_t{1} << size_class;
  Block* block = heap.free[static_cast<size_t>(size_class)];
  if (block != nullptr) {
    heap.free[static_cast<size_t>(size_class)] = block->next;
  } else {
    if (whole > kArenaBytes - heap.used) throw std::bad_alloc();
    block = reinterpret_cast<Block*>(heap.begin + heap.used);
    heap.used += whole;
    block->size_class = size_class;
  }
  return reinterpret_cast<std::byte*>(block) + kHeader;
}

bool IsPinned(void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const auto begin = reinterpret_cast<uintptr_t>(heap.begin);
  return begin != 0 && address >= begin && address < begin + kArenaBytes;
}

void* Allocate(size_t bytes, size_t alignment) {
  if (heap.begin != nullptr && alignment <= kHeader) return Take(bytes);
  const size_t rounded = (std::max(bytes, size_t{1}) + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void Release(void* pointer) {
  if (!IsPinned(pointer)) {
    std::free(pointer);
    return;
  }
  const tandem::MutexLock lock(heap.blocks_mutex);
  auto* block = reinterpret_cast<Block*>(static_cast<std::byte*>(pointer) - kHeader);
  block->next = heap.free[static_cast<size_t>(block->size_class)];
  heap.free[static_cast<size_t>(block->size_class)] = block;
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* pointer) noexcept { Release(pointer); }
void operator delete(void* pointer, size_t) noexcept { Release(pointer); }
void operator delete(void* pointer, std::align_val_t) noexcept { Release(pointer); }
void operator delete(void* pointer, size_t, std::align_val_t) noexcept { Release(pointer); }

namespace tandem::testing {

namespace {

void* PinnedMemory(size_t bytes) {
  void* memory = nullptr;
  const cudaError_t error =
      cudaHostAlloc(&memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable);
  if (error != cudaSuccess) {
    std::fprintf(stderr, "no pinned memory: %s\n", cudaGetErrorString(error));
    std::abort();
  }
  return memory;
}

struct Call {
  const std::function<int()>& run;
  int result = 0;
};

void* RunCall(void* call) {
  auto* const here = static_cast<Call*>(call);
  here->result = here->run();
  return nullptr;
}

}  // namespace

void UsePinnedHeap() { heap.begin = static_cast<std::byte*>(PinnedMemory(kArenaBytes)); }

int RunOnPinnedStack(const std::function<int()>& run) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_t thread;
  Call call{run};
  if (pthread_attr_setstack(&attributes, PinnedMemory(kStackBytes), kStackBytes) != 0 ||
      pthread_create(&thread, &attributes, RunCall, &call) != 0) {
    std::fprintf(stderr, "no thread with a pinned stack\n");
    std::abort();
  }
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  return call.result;
}

std::string DeviceError() {
  const cudaError_t error = cudaDeviceSynchronize();
  return error == cudaSuccess ? "" : cudaGetErrorString(error);
}

}  // namespace tandem::testing
