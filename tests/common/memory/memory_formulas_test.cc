#include "common/memory/memory_formulas.h"

#include <algorithm>

#include <catch2/catch.hpp>

#include "common/memory/worker_memory.h"
#include "tests/common/model_spec/small_spec.h"

namespace tandem {
using testing::SmallSpec;

TEST_CASE("KV bytes count K and V of every KV head", "[model_spec][memory]") {
  const ModelSpec spec = SmallSpec();
  // Two heads of 4 dims, V padded to 16; bf16; 64 tokens.
  REQUIRE(KvBlockLayerBytes(spec) == 2 * (4 + 16) * 2 * 64);
  REQUIRE(KvBlockBytesOfAllLayers(spec) == 3 * KvBlockLayerBytes(spec));
  REQUIRE(KvBlockBytesOfAllLayers(spec, 4) == 2 * KvBlockBytesOfAllLayers(spec));
  REQUIRE(KvBlocksFor(0) == 0);
  REQUIRE(KvBlocksFor(1) == 1);
  REQUIRE(KvBlocksFor(64) == 1);
  REQUIRE(KvBlocksFor(65) == 2);
}

TEST_CASE("Shards cover every row once, whatever the number of ranks", "[model_spec][memory]") {
  for (const int64_t rows : {0, 1, 2, 7, 100}) {
    for (const int64_t world : {1, 2, 3, 8}) {
      int64_t next = 0;
      for (int64_t rank = 0; rank < world; ++rank) {
        const RowRange range = ShardRows(rows, rank, world);
        REQUIRE(range.begin == next);
        REQUIRE(range.rows() >= 0);
        next = range.end;
      }
      REQUIRE(next == rows);
    }
  }
  REQUIRE(ShardRows(2, 2, 3).rows() == 0);
}

TEST_CASE("Parameters add up over layers and over ranks", "[model_spec][memory]") {
  const ModelSpec spec = SmallSpec();
  const int64_t embedding = spec.vocab_size * spec.hidden_size;
  const int64_t parameters = 3 * LayerParameters(spec) + 2 * embedding + spec.hidden_size;
  REQUIRE(spec.parameters() == parameters);
  REQUIRE(GlobalParameters(spec) == 2 * embedding + spec.hidden_size);
  int64_t sum = 0;
  for (int64_t rank = 0; rank < 3; ++rank) sum += ShardParameters(spec, rank, 3);
  REQUIRE(sum == parameters);
}

TEST_CASE("Layers that are dropped after forward share places, others stay",
          "[model_spec][memory]") {
  const ModelSpec spec = SmallSpec();
  const GroupSizes groups = WeightGroups(spec);
  REQUIRE(groups.total() == WeightBytes(spec));
  GatherOptions options{.ranks = 2, .reshard = Reshard::kAlways, .prefetch = false};
  GatherSizes sizes = GatherSizesOf(groups, options);
  REQUIRE(sizes.layers == 1);
  REQUIRE(sizes.places == groups.global + groups.layer);
  REQUIRE(sizes.staging == std::max(groups.global, groups.layer));
  REQUIRE(sizes.total() == sizes.places + sizes.staging);
  options.prefetch = true;
  REQUIRE(GatherSizesOf(groups, options).places == groups.global + 2 * groups.layer);
  REQUIRE(GatherSizesOf({.global = 1, .layer = 1, .layers = 1}, options).layers == 1);
  options.reshard = Reshard::kNever;
  REQUIRE(GatherSizesOf(groups, options).places == groups.total());
  // auto: an eighth of what may be held decides.
  options.reshard = Reshard::kAuto;
  options.kept_bytes = 8 * groups.total();
  REQUIRE(GatherSizesOf(groups, options).layers == 3);
  options.kept_bytes -= 8;
  REQUIRE(GatherSizesOf(groups, options).layers == 2);
}

TEST_CASE("A single rank has all places, whatever it is told to drop", "[model_spec][memory]") {
  const GroupSizes groups = WeightGroups(SmallSpec());
  const GatherOptions options{.ranks = 1, .reshard = Reshard::kAlways};
  REQUIRE(GatherSizesOf(groups, options).total() == groups.total());
}

TEST_CASE("Row-major tensors of usual sizes lie without gaps, odd ones do not",
          "[model_spec][memory]") {
  ModelSpec spec = SmallSpec();
  REQUIRE(!RowMajorIsDense(spec));
  spec.hidden_size = 128;
  spec.num_heads = 4;
  spec.num_kv_heads = 1;
  spec.head_dim = 64;
  spec.intermediate_size = 96;
  REQUIRE(RowMajorIsDense(spec));
  REQUIRE(RowMajorIsDense(spec, 4));
  spec.qk_norm = true;  // of 64 values: 128 bytes in bf16
  REQUIRE(!RowMajorIsDense(spec));
  REQUIRE(RowMajorIsDense(spec, 4));
  spec.qk_norm = false;
  spec.hidden_size = 576;
  REQUIRE(!RowMajorIsDense(spec));
}

TEST_CASE("A GPU's single rank gathers nothing where its shard is laid out",
          "[model_spec][memory]") {
  ModelSpec spec = SmallSpec();
  spec.hidden_size = 128;
  TrainerMemoryOptions options{.pairs = 1, .gpu = true};
  REQUIRE(TrainerBytes(spec, options).gather == 0);
  options.reference = options.offload_reference = true;
  const int64_t all = RegionBytes(GatherSizesOf(WeightGroups(spec), {}).total());
  REQUIRE(TrainerBytes(spec, options).gather == all);
  options.reference = false;
  options.gpu = false;
  REQUIRE(TrainerBytes(spec, options).gather == all);
  options.gpu = true;
  spec.hidden_size = 120;
  REQUIRE(TrainerBytes(spec, options).gather > 0);
}

TEST_CASE("Several ranks on GPUs hold full gradients of two layers, on CPUs of one",
          "[model_spec][memory]") {
  ModelSpec spec = SmallSpec();
  spec.hidden_size = 1024;
  const int64_t layer = 4 * LayerParameters(spec);
  TrainerMemoryOptions options{.pairs = 2};
  const int64_t on_cpu = TrainerBytes(spec, options).gradients;
  options.gpu = true;
  REQUIRE(TrainerBytes(spec, options).gradients - on_cpu ==
          RegionBytes(2 * layer) - RegionBytes(layer));
  options.pairs = 1;
  REQUIRE(TrainerBytes(spec, options).gradients == RegionBytes(4 * spec.parameters()));
  REQUIRE(GradientBuffers(1, true) == 1);
}

TEST_CASE("The KV pool is what is wanted, or what fits beside the weights",
          "[model_spec][memory]") {
  const ModelSpec spec = SmallSpec();
  const int64_t block = KvBlockBytesOfAllLayers(spec);
  KvPoolPlan plan{.memory_utilization = 0.5, .weight_bytes = 1000, .max_num_seqs = 4};
  plan.max_model_len = 65;
  plan.device_bytes = 2 * (1000 + 100 * block);
  REQUIRE(FittingKvBlocks(spec, 2, plan) == 100);
  REQUIRE(KvPoolBlocks(spec, 2, plan) == 8);
  plan.device_bytes = 2 * (1000 + 3 * block);
  REQUIRE(KvPoolBlocks(spec, 2, plan) == 3);
  plan.device_bytes = 100;
  REQUIRE(KvPoolBlocks(spec, 2, plan) == 0);
  REQUIRE(RegionBytes(1) == int64_t{2} << 20);
  REQUIRE(RegionBytes(int64_t{2} << 20) == int64_t{2} << 20);
}

}  // namespace tandem
