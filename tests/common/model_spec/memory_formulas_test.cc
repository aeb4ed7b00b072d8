#include "common/model_spec/memory_formulas.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

ModelSpec SmallSpec() {
  ModelSpec spec;
  spec.model_type = "llama";
  spec.vocab_size = 100;
  spec.hidden_size = 8;
  spec.num_layers = 3;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = 4;
  spec.intermediate_size = 12;
  return spec;
}

}  // namespace

TEST_CASE("KV bytes count K and V of every KV head", "[model_spec][memory]") {
  const ModelSpec spec = SmallSpec();
  REQUIRE(KvBytesPerToken(spec) == 2 * 2 * 4 * 2 * 3);
  REQUIRE(KvBlockLayerBytes(spec) == 2 * 2 * 4 * 2 * 64);
  REQUIRE(KvBlockBytes(spec) == 64 * KvBytesPerToken(spec));
  REQUIRE(KvBlockBytes(spec, 4) == 2 * KvBlockBytes(spec));
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
  const int64_t parameters =
      3 * LayerParameters(spec) + 2 * EmbeddingParameters(spec) + spec.hidden_size;
  REQUIRE(spec.parameters() == parameters);
  REQUIRE(WeightBytes(spec) == 2 * parameters);
  int64_t sum = 0;
  for (int64_t rank = 0; rank < 3; ++rank) sum += ShardParameters(spec, rank, 3);
  REQUIRE(sum == parameters);
  REQUIRE(MasterBytes(spec, 0, 1) == 4 * parameters);
  REQUIRE(OptimizerBytes(spec, 0, 1) == 8 * parameters);
  REQUIRE(CheckpointBytes(spec) ==
          MasterBytes(spec, 0, 1) + OptimizerBytes(spec, 0, 1) + WeightBytes(spec));
}

TEST_CASE("Recompute keeps only layer inputs", "[model_spec][memory]") {
  const ModelSpec spec = SmallSpec();
  REQUIRE(ActivationBytesPerToken(spec, true) == 3 * 2 * 8);
  REQUIRE(ActivationBytesPerToken(spec, false) > ActivationBytesPerToken(spec, true));
  REQUIRE(LogitBytesPerToken(spec) == 400);
}

}  // namespace tandem
