// The operations on a shard on a GPU, against the CPU.
#include "common/weights/cuda/cuda_shard_ops.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include <catch2/catch.hpp>

#include "common/process/threads.h"
#include "tests/common/ops/cuda/test_cuda.h"
#include "tests/emulator/emulated_cuda.h"

namespace tandem {
namespace {

struct ShardOpsFixture {
  explicit ShardOpsFixture(std::unique_ptr<CudaApi> api = testing::OpenTestCuda())
      : cuda(std::move(api)) {}

  std::unique_ptr<CudaApi> cuda;
  std::unique_ptr<CudaContext> context = *CudaContext::Create(cuda.get(), 0);
  std::unique_ptr<ShardOps> device = *CreateCudaShardOps(context.get());
  std::unique_ptr<ShardOps> host = CreateCpuShardOps(std::make_shared<ThreadPool>(1));
};

std::vector<float> RandomShard(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

bool SameShardBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("A step on a GPU has the bits of a step on a CPU, and counts the same changes",
          "[weights][cuda]") {
  ShardOpsFixture f;
  constexpr int64_t kCount = 3001;
  const std::vector<float> gradient = RandomShard(kCount, 2);
  struct State {
    std::vector<float> master = RandomShard(kCount, 1);
    std::vector<float> exp_avg = RandomShard(kCount, 3);
    std::vector<float> exp_avg_sq = std::vector<float>(kCount, 0.5f);
    std::vector<Bf16> rounded = std::vector<Bf16>(kCount);
  };
  State states[2];
  int64_t changed[2];
  ShardOps* const ops[] = {f.host.get(), f.device.get()};
  for (int i = 0; i < 2; ++i) {
    State& s = states[i];
    ops[i]->Round(s.master.data(), s.rounded.data(), kCount);
    REQUIRE(f.context->Synchronize().ok());
    const AdamWFactors factors{.gradient_scale = 0.5f,
                               .weight1 = 0.1f,
                               .beta2 = 0.99f,
                               .weight2 = 0.01f,
                               .decay = 0.999f,
                               .step_size = 1e-3f,
                               .sqrt_bias_correction2 = 0.3f,
                               .eps = 1e-8f};
    const auto stepped = ops[i]->Step({.master = s.master.data(),
                                       .gradient = gradient.data(),
                                       .exp_avg = s.exp_avg.data(),
                                       .exp_avg_sq = s.exp_avg_sq.data(),
                                       .rounded = s.rounded.data(),
                                       .count = kCount},
                                      factors);
    REQUIRE(stepped.ok());
    changed[i] = *stepped;
  }
  REQUIRE(changed[0] > 0);
  REQUIRE(changed[0] < kCount);
  REQUIRE(changed[1] == changed[0]);
  REQUIRE(SameShardBits(states[0].master, states[1].master));
  REQUIRE(SameShardBits(states[0].exp_avg, states[1].exp_avg));
  REQUIRE(SameShardBits(states[0].exp_avg_sq, states[1].exp_avg_sq));
  REQUIRE(states[0].rounded == states[1].rounded);
}

TEST_CASE("Sums of squares of many ranges come back in their order", "[weights][cuda]") {
  ShardOpsFixture f;
  const std::vector<float> values = RandomShard(20000, 4);
  std::vector<FloatRange> ranges;
  int64_t at = 0;
  for (const int64_t count : {0, 1, 4096, 100, 0, 12345}) {
    ranges.push_back({values.data() + at, count});
    at += count;
  }
  const auto host = f.host->SumsOfSquares(ranges), device = f.device->SumsOfSquares(ranges);
  REQUIRE(device.ok());
  REQUIRE(device->size() == ranges.size());
  for (size_t i = 0; i < ranges.size(); ++i) {
    // Other orders of the same sum in double.
    REQUIRE(std::abs((*device)[i] - (*host)[i]) <= 1e-12 * (*host)[i]);
  }
  const auto again = f.device->SumsOfSquares({ranges[5]});
  REQUIRE(std::bit_cast<uint64_t>((*again)[0]) == std::bit_cast<uint64_t>((*device)[5]));
  REQUIRE(f.device->SumsOfSquares({})->empty());
}

TEST_CASE("A tensor's digest is the same from runs that end anywhere", "[weights][cuda]") {
  ShardOpsFixture f;
  constexpr int64_t kCount = 20011;
  const std::vector<float> masters = RandomShard(kCount, 5);
  std::vector<Bf16> rounded(kCount);
  f.host->Round(masters.data(), rounded.data(), kCount);
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
    const auto element = static_cast<int64_t>(DTypeBytes(dtype));
    const Digest want = dtype == DType::kBFloat16 ? DigestOf(rounded.data(), 2 * kCount)
                                                  : DigestOf(masters.data(), 4 * kCount);
    std::vector<MasterRun> runs;
    int64_t first = 0;
    for (const int64_t count : {1, 2, 29, 32, 3, 5, 64, 17000, 31, 1, 700}) {
      runs.push_back({masters.data() + first, count, first * element});
      first += count;
    }
    runs.push_back({masters.data() + first, kCount - first, first * element});
    for (ShardOps* ops : {f.host.get(), f.device.get()}) {
      const auto digests = ops->Digest(runs, dtype);
      REQUIRE(digests.ok());
      DigestRun whole;
      for (const DigestRun& digest : *digests) whole.Join(digest);
      REQUIRE(whole.Finish() == want);
    }
  }
}

TEST_CASE("A NaN among the masters has one digest: of the masters, of the shard, here and there",
          "[weights][cuda]") {
  ShardOpsFixture f;
  constexpr int64_t kCount = 2000;
  std::vector<float> masters = RandomShard(kCount, 7);
  // Quiet and signalling ones, of either sign, with payloads above and below what bf16 keeps,
  // inside whole blocks and at their edges.
  const uint32_t nans[] = {0x7fc00000u, 0x7f800001u, 0xffc12345u, 0xff9a0000u, 0x7fffffffu};
  for (size_t i = 0; i < 5; ++i) {
    masters[1 + 400 * i] = std::bit_cast<float>(nans[i]);
    masters[i] = std::bit_cast<float>(nans[i]);
  }
  std::vector<Bf16> there(kCount), here(kCount);
  f.host->Round(masters.data(), there.data(), kCount);
  f.device->Round(masters.data(), here.data(), kCount);
  REQUIRE(f.context->Synchronize().ok());
  REQUIRE(here == there);
  const Digest stored = DigestOf(there.data(), 2 * kCount);
  for (ShardOps* ops : {f.host.get(), f.device.get()}) {
    const auto digests = ops->Digest({{masters.data(), kCount, 0}}, DType::kBFloat16);
    REQUIRE(digests.ok());
    DigestRun whole;
    for (const DigestRun& digest : *digests) whole.Join(digest);
    REQUIRE(whole.Finish() == stored);
  }
}

TEST_CASE("No memory for a step's counts is an error, and nothing is stepped",
          "[weights][cuda][emulator]") {
  auto* const cuda = new emulator::EmulatedCuda;
  ShardOpsFixture f{std::unique_ptr<CudaApi>(cuda)};
  std::vector<float> master(10, 1.0f), gradient(10, 1.0f), m(10), v(10);
  const AdamWArrays arrays = {master.data(), gradient.data(), m.data(), v.data(), nullptr, 10};
  cuda->FailCall("Malloc", absl::ResourceExhaustedError("full"));
  REQUIRE(absl::IsResourceExhausted(f.device->Step(arrays, {.step_size = 1.0f}).status()));
  REQUIRE(master == std::vector<float>(10, 1.0f));
  REQUIRE(
      f.device->Step(arrays, {.step_size = 1.0f, .sqrt_bias_correction2 = 1.0f, .eps = 1.0f}).ok());
  cuda->FailCall("Malloc", absl::ResourceExhaustedError("full"));
  REQUIRE(absl::IsResourceExhausted(f.device->SumsOfSquares({{gradient.data(), 10}}).status()));
}

TEST_CASE("More runs than go at once, and none, are digested", "[weights][cuda]") {
  ShardOpsFixture f;
  const std::vector<float> masters = RandomShard(600, 6);
  std::vector<MasterRun> runs;
  for (int64_t i = 0; i < 600; ++i) runs.push_back({masters.data() + i, 1, 2 * i});
  const auto host = f.host->Digest(runs, DType::kBFloat16);
  const auto device = f.device->Digest(runs, DType::kBFloat16);
  REQUIRE(device.ok());
  REQUIRE(device->size() == runs.size());
  DigestRun a, b;
  for (size_t i = 0; i < runs.size(); ++i) {
    a.Join((*host)[i]);
    b.Join((*device)[i]);
  }
  REQUIRE(a.Finish() == b.Finish());
  REQUIRE(f.device->Digest({}, DType::kBFloat16)->empty());
}

TEST_CASE("A sample has the same blocks from a GPU", "[weights][cuda]") {
  ShardOpsFixture f;
  const std::vector<float> values = RandomShard(5003, 7);
  const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
  for (const int64_t count : {0, 16, 5003}) {
    for (const int64_t distance : {64, 192}) {
      const int64_t length = 4 * count;
      const int64_t blocks = (length + distance - 1) / distance;
      std::vector<std::byte> host(static_cast<size_t>(blocks * 64)), device = host;
      REQUIRE(f.host->ReadSample(bytes, length, distance, host.data()).ok());
      REQUIRE(f.device->ReadSample(bytes, length, distance, device.data()).ok());
      REQUIRE(host == device);
    }
  }
}

}  // namespace tandem
