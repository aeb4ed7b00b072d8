#include <algorithm>
#include <random>
#include <set>

#include <catch2/catch.hpp>

#include "rollout_worker/generation/scheduler.h"

namespace tandem {

TEST_CASE("A block allocator refuses more than it has and takes nothing then") {
  BlockAllocator allocator(4);
  std::vector<int32_t> blocks;
  REQUIRE(allocator.Allocate(3, &blocks).ok());
  const absl::Status refused = allocator.Allocate(2, &blocks);
  REQUIRE(absl::IsResourceExhausted(refused));
  REQUIRE(blocks.size() == 3);
  REQUIRE(allocator.free_blocks() == 1);
  REQUIRE(std::string(refused.message()).find("1 of 4") != std::string::npos);
}

TEST_CASE("A shared block is free only when its last holder gave it back") {
  BlockAllocator allocator(2);
  std::vector<int32_t> blocks;
  REQUIRE(allocator.Allocate(1, &blocks).ok());
  allocator.Share(blocks);
  allocator.Free(blocks);
  REQUIRE(allocator.holders(blocks[0]) == 1);
  REQUIRE(allocator.free_blocks() == 1);
  allocator.Free(blocks);
  REQUIRE(allocator.free_blocks() == 2);
}

TEST_CASE("Random allocation, sharing and freeing never loses or doubles a block") {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    BlockAllocator allocator(37);
    std::vector<std::vector<int32_t>> holdings;
    for (int i = 0; i < 2000; ++i) {
      const auto action = random() % 3;
      if (action == 0) {
        std::vector<int32_t> blocks;
        if (allocator.Allocate(random() % 8, &blocks).ok()) holdings.push_back(blocks);
      } else if (action == 1 && !holdings.empty()) {
        const auto shared = holdings[random() % holdings.size()];
        allocator.Share(shared);
        holdings.push_back(shared);
      } else if (!holdings.empty()) {
        std::swap(holdings[random() % holdings.size()], holdings.back());
        allocator.Free(holdings.back());
        holdings.pop_back();
      }
      std::vector<int64_t> expected(37, 0);
      for (const auto& blocks : holdings) {
        for (const int32_t block : blocks) ++expected[static_cast<size_t>(block)];
      }
      int64_t used = 0;
      for (int32_t block = 0; block < 37; ++block) {
        REQUIRE(allocator.holders(block) == expected[static_cast<size_t>(block)]);
        used += expected[static_cast<size_t>(block)] > 0 ? 1 : 0;
      }
      REQUIRE(allocator.used_blocks() == used);
    }
  }
}

}  // namespace tandem
