// Adapters by all threads of a process: how rows and columns are cut changes no bit.
#include <memory>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/philox.h"
#include "common/lora/lora_gradients.h"
#include "common/lora/merge.h"
#include "common/process/threads.h"
#include "common/weights/shard_ops.h"

namespace tandem {
namespace {

constexpr int64_t kRows = 333, kIn = 700, kRank = 5;

std::vector<float> Values(int64_t count, uint64_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    // Denormals too: the compute threads would flush them.
    const float unit = RandomUniform(seed, 0, static_cast<uint64_t>(i)) - 0.5f;
    values.push_back(i % 11 == 0 ? unit * 1e-38f : unit);
  }
  return values;
}

const std::vector<float> kDw = Values(kRows * kIn, 1), kB = Values(kRows * kRank, 2),
                         kA = Values(kRank * kIn, 3);

TEST_CASE("any number of threads merges the bits of one", "[weights][lora]") {
  std::vector<Bf16> base;
  for (const float value : Values(kRows * kIn, 4)) base.push_back(ToBf16(value));
  for (const DType out_dtype : {DType::kFloat32, DType::kBFloat16}) {
    std::vector<std::byte> want(static_cast<size_t>(kRows * kIn) * DTypeBytes(out_dtype));
    MergeBlock block{.base = base.data(),
                     .b = kB.data(),
                     .a = kA.data(),
                     .scaling = 0.75,
                     .rows = kRows,
                     .in = kIn,
                     .rank = kRank,
                     .out = want.data(),
                     .out_dtype = out_dtype};
    MergeRows(block);
    for (const int threads : {1, 2, 5}) {
      std::vector<std::byte> got(want.size());
      block.out = got.data();
      CreateCpuShardOps(std::make_shared<ThreadPool>(threads))->Merge(block);
      REQUIRE(got == want);
    }
  }
}

TEST_CASE("any number of threads adds the gradients of one", "[weights][lora]") {
  struct Sums {
    std::vector<float> db = Values(kRows * kRank, 5), da = Values(kRank * kIn, 6);
    bool operator==(const Sums&) const = default;
    LoraGradientBlock Block() {
      return {.dw = kDw.data(),
              .b = kB.data(),
              .a = kA.data(),
              .scaling = 0.75,
              .rows = kRows,
              .in = kIn,
              .rank = kRank,
              .db = db.data(),
              .da = da.data()};
    }
  };
  Sums want;
  AddLoraGradients(want.Block());
  for (const int threads : {1, 2, 5}) {
    Sums got;
    CreateCpuShardOps(std::make_shared<ThreadPool>(threads))->AddLoraGradients(got.Block());
    REQUIRE(got == want);
  }
}

}  // namespace
}  // namespace tandem
