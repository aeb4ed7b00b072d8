// The emulator itself: barriers, warp functions and tensor-core fragments against plain loops.
#include "tests/emulator/emulator.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <catch2/catch.hpp>

#include "common/types/tensor_view.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/emulator/scoped_seed.h"

namespace tandem {
namespace {

using emulator::EmulatedCuda;
using testing::ScopedSeed;

__global__ void ReverseThroughShared(const int* in, int* out) {
  int* shared = reinterpret_cast<int*>(SharedMemory());
  const unsigned base = blockIdx.x * blockDim.x;
  shared[threadIdx.x] = in[base + threadIdx.x];
  __syncthreads();
  out[base + threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

__global__ void WithoutBarrier(const int* in, int* out) {
  int* shared = reinterpret_cast<int*>(SharedMemory());
  shared[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

// Two groups of 16 bytes a thread; `left` of the newest are not waited for before both are read.
template <int kLeft>
__global__ void CopyThenRead(const int* in, int* out) {
  int* shared = reinterpret_cast<int*>(SharedMemory());
  for (unsigned group = 0; group < 2; ++group) {
    const unsigned at = (group * 32 + threadIdx.x) * 4;
    CopyAsync16(shared + at, in + at, threadIdx.x != 31);
    CopyCommit();
  }
  CopyWait<kLeft>();
  __syncthreads();
  for (unsigned i = threadIdx.x; i < 256; i += 32) out[i] = shared[i];
  __syncthreads();
  CopyWait<0>();
}

__global__ void SumOfWarp(const float* in, float* out) {
  float sum = in[threadIdx.x];
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += ShuffleXor(sum, lanes);
  out[threadIdx.x] = sum;
}

// d [16, 8] = a [16, 16] b [8, 16]ᵀ, both row-major bf16, through ldmatrix.
__global__ void Product(const uint16_t* a, const uint16_t* b, float* d) {
  auto* rows = reinterpret_cast<uint16_t*>(SharedMemory());  // a, then b twice: 32 rows of 16
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 256; i += 32) rows[i] = a[i];
  for (int i = lane; i < 128; i += 32) rows[256 + i] = b[i];
  __syncthreads();
  uint32_t fragment_a[4], both[4];
  LdMatrix4(fragment_a, rows + (lane % 16) * 16 + lane / 16 * 8);
  LdMatrix4(both, rows + 256 + (lane % 8) * 16 + lane / 8 % 2 * 8);
  const uint32_t fragment_b[2] = {both[0], both[1]};
  float sums[4] = {};
  MmaBf16(sums, fragment_a, fragment_b);
  for (int i = 0; i < 4; ++i) {
    d[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sums[i];
  }
}

// The same with b given as [16, 8] row-major, transposed by ldmatrix.
__global__ void ProductTransposed(const uint16_t* a, const uint16_t* b, float* d) {
  auto* rows = reinterpret_cast<uint16_t*>(SharedMemory());
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 256; i += 32) rows[i] = a[i];
  for (int i = lane; i < 128; i += 32) rows[256 + i] = b[i];
  __syncthreads();
  uint32_t fragment_a[4], both[4];
  LdMatrix4(fragment_a, rows + (lane % 16) * 16 + lane / 16 * 8);
  LdMatrix4Transposed(both, rows + 256 + (lane % 16) * 8);
  const uint32_t fragment_b[2] = {both[0], both[1]};
  float sums[4] = {};
  MmaBf16(sums, fragment_a, fragment_b);
  for (int i = 0; i < 4; ++i) {
    d[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sums[i];
  }
}

std::vector<int> NumbersUpTo(int count) {
  std::vector<int> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 1);
  return numbers;
}

}  // namespace

TEST_CASE("threads of a block meet at barriers, whichever runs first") {
  for (const uint64_t seed : testing::TwoSeeds()) {
    const ScopedSeed scoped(seed);
    const std::vector<int> in = NumbersUpTo(3 * 96);
    std::vector<int> out(in.size());
    Launch(ReverseThroughShared, {.grid_x = 3, .threads = 96, .shared_bytes = 96 * 4}, nullptr,
           in.data(), out.data());
    for (size_t i = 0; i < in.size(); ++i) REQUIRE(out[i] == in[i / 96 * 96 + 95 - i % 96]);
  }
}

TEST_CASE("blocks of more and of fewer threads follow one another") {
  for (const unsigned threads : {64u, 32u, 96u, 32u, 128u, 64u}) {
    const std::vector<int> in = NumbersUpTo(static_cast<int>(threads));
    std::vector<int> out(in.size());
    Launch(ReverseThroughShared, {.threads = threads, .shared_bytes = threads * 4}, nullptr,
           in.data(), out.data());
    REQUIRE(std::equal(in.rbegin(), in.rend(), out.begin()));
  }
}

TEST_CASE("a missing barrier shows in what a kernel computes, too") {
  const std::vector<int> in = NumbersUpTo(64);
  for (uint64_t seed = 1; seed < 4; ++seed) {
    const ScopedSeed scoped(seed);
    std::vector<int> out(64);
    Launch(WithoutBarrier, {.threads = 64, .shared_bytes = 256}, nullptr, in.data(), out.data());
    REQUIRE(!std::equal(in.rbegin(), in.rend(), out.begin()));
  }
}

TEST_CASE("what is copied asynchronously is there once its group was waited for, not before") {
  alignas(16) int in[256];
  std::iota(in, in + 256, 1);
  std::vector<int> out(256);
  const auto expect = [&](int from, bool there) {
    for (int i = from; i < from + 124; ++i) {
      REQUIRE((out[static_cast<size_t>(i)] == in[i]) == there);
    }
    for (int i = from + 124; i < from + 128; ++i) {  // not valid: zeros
      REQUIRE((out[static_cast<size_t>(i)] == 0) == there);
    }
  };
  Launch(&CopyThenRead<0>, {1, 1, 1, 32, 1024}, nullptr, in, out.data());
  expect(0, true);
  expect(128, true);
  Launch(&CopyThenRead<1>, {1, 1, 1, 32, 1024}, nullptr, in, out.data());
  expect(0, true);
  expect(128, false);
  Launch(&CopyThenRead<2>, {1, 1, 1, 32, 1024}, nullptr, in, out.data());
  expect(0, false);
}

TEST_CASE("lanes exchange values within their warp alone") {
  std::vector<float> in(64), out(64);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
  Launch(SumOfWarp, {.threads = 64}, nullptr, in.data(), out.data());
  REQUIRE(out[5] == 496.0f);
  REQUIRE(out[40] == 496.0f + 32 * 32);
}

TEST_CASE("tensor-core fragments are laid out as the manual says") {
  std::vector<uint16_t> a(256), b(128), transposed(128);
  std::vector<float> d(128), e(128);
  for (size_t i = 0; i < a.size(); ++i) a[i] = ToBf16(static_cast<float>(i * 7 % 13) - 6);
  for (size_t i = 0; i < b.size(); ++i) {
    b[i] = ToBf16(static_cast<float>(i * 5 % 11) - 5);
    transposed[i % 16 * 8 + i / 16] = b[i];
  }
  Launch(Product, {.threads = 32, .shared_bytes = 1024}, nullptr, a.data(), b.data(), d.data());
  Launch(ProductTransposed, {.threads = 32, .shared_bytes = 1024}, nullptr, a.data(),
         transposed.data(), e.data());
  for (size_t row = 0; row < 16; ++row) {
    for (size_t col = 0; col < 8; ++col) {
      float sum = 0;
      for (size_t k = 0; k < 16; ++k) sum += FromBf16(a[row * 16 + k]) * FromBf16(b[col * 16 + k]);
      REQUIRE(d[row * 8 + col] == sum);
      REQUIRE(e[row * 8 + col] == sum);
    }
  }
}

TEST_CASE("what is captured is done when its graph is launched, and as often") {
  EmulatedCuda cuda;
  const CudaStream stream = *cuda.CreateStream();
  std::vector<int> in = NumbersUpTo(32), out(32);
  REQUIRE(cuda.BeginCapture(stream).ok());
  Launch(ReverseThroughShared, {.threads = 32, .shared_bytes = 128}, stream,
         static_cast<const int*>(in.data()), out.data());
  const CudaGraph graph = *cuda.EndCapture(stream);
  REQUIRE(out == std::vector<int>(32));
  for (int round = 0; round < 2; ++round) {
    in[31] = 100 + round;
    REQUIRE(cuda.LaunchGraph(graph, stream).ok());
    REQUIRE(out[0] == 100 + round);
  }
  REQUIRE(cuda.DestroyGraph(graph).ok());
  REQUIRE(cuda.DestroyStream(stream).ok());
}

TEST_CASE("pages come from what the device has, and go back to it") {
  EmulatedCuda cuda({.total_bytes = 6 << 20});
  std::byte* const address = *cuda.ReserveAddresses(8 << 20);
  const CudaPages pages = *cuda.CreatePages(4 << 20);
  REQUIRE(cuda.MapPages(address, 4 << 20, pages).ok());
  address[0] = std::byte{1};
  REQUIRE(*cuda.FreeBytes() == 2 << 20);
  REQUIRE(absl::IsResourceExhausted(cuda.CreatePages(4 << 20).status()));
  REQUIRE(!cuda.ReleasePages(pages).ok());
  REQUIRE(cuda.UnmapPages(address, 4 << 20).ok());
  REQUIRE(cuda.ReleasePages(pages).ok());
  REQUIRE(cuda.used_bytes() == 0);
  REQUIRE(cuda.FreeAddresses(address, 8 << 20).ok());
}

TEST_CASE("plain memory is opened by its handle") {
  EmulatedCuda owner, other({.process = -1});
  std::byte* const memory = *owner.Malloc(4096);
  const CudaIpcHandle handle = *owner.ExportMemory(memory);
  std::byte* const seen = *other.OpenMemory(handle);
  memory[7] = std::byte{42};
  REQUIRE(seen[7] == std::byte{42});
  REQUIRE(other.CloseMemory(seen).ok());
  REQUIRE(owner.Free(memory).ok());
  REQUIRE(owner.used_bytes() == 0);
  owner.FailCall("Malloc", absl::ResourceExhaustedError("as told"), 1);
  REQUIRE(owner.Malloc(4096).ok());
  REQUIRE(owner.Malloc(4096).status().message() == "as told");
}

}  // namespace tandem
