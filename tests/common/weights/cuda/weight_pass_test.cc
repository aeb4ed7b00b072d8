// The kernel that weights go through, thread by thread: what it writes, and its digests, which are
// the CPU's.
#include "common/weights/cuda/weight_pass.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include <catch2/catch.hpp>

#include "common/types/tensor_view.h"
#include "common/weights/cuda/weight_runs.h"
#include "common/weights/digest.h"
#include "tests/common/ops/cuda/test_cuda.h"
#include "tests/emulator/scoped_seed.h"

namespace tandem {
namespace {

struct WeightPassFixture {
  std::unique_ptr<CudaApi> cuda = testing::OpenTestCuda();
  std::unique_ptr<CudaContext> context = *CudaContext::Create(cuda.get(), 0);
  std::unique_ptr<DeviceSums> sums = *DeviceSums::Create(context.get(), 64);

  std::vector<Digest> Run(const WeightRuns& runs,
                          WeightPassKind kind,
                          const std::vector<int64_t>& tensor_bytes) {
    const auto pairs = static_cast<int64_t>(tensor_bytes.size());
    REQUIRE(sums->Clear(pairs).ok());
    REQUIRE(runs.Launch(*context, kind, sums.get()).ok());
    const auto held = sums->Read(pairs);
    REQUIRE(held.ok());
    std::vector<Digest> digests;
    for (size_t t = 0; t < tensor_bytes.size(); ++t) {
      DigestBuilder builder;
      builder.Add((*held)[t]);
      digests.push_back(builder.Finish(tensor_bytes[t]));
    }
    return digests;
  }
};

std::vector<unsigned char> RandomBytes(int64_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<unsigned char> data(static_cast<size_t>(bytes));
  for (unsigned char& byte : data) byte = static_cast<unsigned char>(random());
  return data;
}

// Less than a block, about a sweep of all threads (4 KiB), about a tile (32 KiB) and several.
const std::vector<int64_t> kSizes = {2,     14,    16,    30,    62,    64,    66,
                                     126,   1022,  4094,  4096,  4098,  16382, 16400,
                                     32766, 32768, 32770, 36866, 65536, 70000};

}  // namespace

TEST_CASE("digests on the device are the CPU's, for every size and alignment") {
  WeightPassFixture f;
  for (const uint64_t seed : testing::TwoSeeds()) {
    const testing::ScopedSeed scoped(seed);
    for (const int64_t shift : {0, 2, 8, 14}) {
      std::vector<std::vector<unsigned char>> tensors;
      WeightRuns runs;
      std::vector<Digest> want;
      for (size_t t = 0; t < kSizes.size(); ++t) {
        tensors.push_back(RandomBytes(kSizes[t] + 32, static_cast<unsigned>(t)));
        const unsigned char* data = tensors.back().data() + shift;
        want.push_back(DigestOf(data, kSizes[t]));
        runs.Add(data, nullptr, kSizes[t], 0, static_cast<int64_t>(t));
      }
      INFO("shift " << shift);
      REQUIRE(f.Run(runs, WeightPassKind::kRead, kSizes) == want);
    }
  }
}

TEST_CASE("a tensor that comes in pieces, in any order, has its digest; it is written as it is") {
  WeightPassFixture f;
  const int64_t bytes = 50000;  // ends inside a block
  const std::vector<unsigned char> tensor = RandomBytes(bytes, 7);
  const Digest want = DigestOf(tensor.data(), bytes);
  for (const int64_t cut : {64, 4096, 5760, 32768, 49984}) {
    for (const int64_t shift : {0, 6}) {
      INFO("pieces of " << cut << " bytes, written at " << shift);
      std::vector<unsigned char> slot = tensor, written(static_cast<size_t>(bytes) + 32, 0xab);
      WeightRuns runs;
      const int64_t from = cut == 64 ? 49152 : 0;  // a few blocks suffice
      for (int64_t at = (bytes - 1) / cut * cut; at >= from; at -= cut) {
        runs.Add(slot.data() + at, written.data() + 16 + shift + at, std::min(cut, bytes - at), at);
      }
      const std::vector<Digest> got = f.Run(runs, WeightPassKind::kCopy, {bytes});
      if (from == 0) REQUIRE(got[0] == want);
      REQUIRE(std::equal(tensor.begin() + from, tensor.end(), written.begin() + 16 + shift + from));
      REQUIRE(std::all_of(written.begin(), written.begin() + 16 + shift + from,
                          [](unsigned char byte) { return byte == 0xab; }));
      REQUIRE(std::all_of(written.begin() + 16 + shift + bytes, written.end(),
                          [](unsigned char byte) { return byte == 0xab; }));
    }
  }
}

TEST_CASE("masters are rounded as the CPU rounds them, and digested as what they round to") {
  WeightPassFixture f;
  std::vector<float> masters;
  std::mt19937 random(3);
  for (int i = 0; i < 20011; ++i) {
    const uint32_t bits = static_cast<uint32_t>(random());
    float value;
    memcpy(&value, &bits, sizeof(value));
    masters.push_back(value == value ? value : 1.0f + static_cast<float>(i));
  }
  // Halfway to the neighbour below and above, the largest, and what rounds to infinity.
  for (const uint32_t bits : {0x3f808000u, 0x3f818000u, 0x3f808001u, 0x7f7f7fffu, 0x7f7fffffu}) {
    float value;
    memcpy(&value, &bits, sizeof(value));
    masters.push_back(value);
  }
  std::vector<Bf16> want;
  for (const float value : masters) want.push_back(ToBf16(value));
  const auto count = static_cast<int64_t>(masters.size());
  for (const int64_t shift : {0, 1}) {
    std::vector<float> held(masters.size() + 8);
    std::copy(masters.begin(), masters.end(), held.begin() + shift);
    std::vector<uint16_t> slot(masters.size() + 8);
    WeightRuns runs;
    runs.Add(held.data() + shift, slot.data(), 2 * count);
    REQUIRE(f.Run(runs, WeightPassKind::kRound, {2 * count})[0] ==
            DigestOf(want.data(), 2 * count));
    REQUIRE(memcmp(slot.data(), want.data(), static_cast<size_t>(2 * count)) == 0);
  }
}

TEST_CASE("one launch does all runs, and none where there is nothing to do", "[emulator]") {
  WeightPassFixture f;
  std::vector<unsigned char> memory(100);
  WeightRuns none, runs;
  none.Add(memory.data(), memory.data(), 0);
  const int64_t before = emulator::KernelsRun();
  REQUIRE(none.Launch(*f.context, WeightPassKind::kCopy).ok());
  REQUIRE(emulator::KernelsRun() == before);
  for (int64_t i = 0; i < 10; ++i) runs.Add(nullptr, memory.data() + i * 10, 6);
  REQUIRE(runs.Launch(*f.context, WeightPassKind::kNan).ok());
  REQUIRE(emulator::KernelsRun() == before + 1);
}

TEST_CASE("what is to be NaN is, and nothing beside it") {
  WeightPassFixture f;
  std::vector<unsigned char> memory(100000);
  WeightRuns runs;
  for (int64_t i = 0; i < 20; ++i) runs.Add(nullptr, memory.data() + i * 4000, 1000 + i * 100);
  REQUIRE(runs.Launch(*f.context, WeightPassKind::kNan).ok());
  REQUIRE(f.context->Synchronize().ok());
  for (int64_t at = 0; at < 80000; ++at) {
    const int64_t i = at / 4000;
    REQUIRE(memory[static_cast<size_t>(at)] == (at % 4000 < 1000 + i * 100 ? 0xff : 0));
  }
}

}  // namespace tandem
