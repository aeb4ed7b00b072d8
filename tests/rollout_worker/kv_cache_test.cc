#include "rollout_worker/generation/kv_cache.h"

#include <cstring>

#include <catch2/catch.hpp>

#include "common/model/weights_view.h"
#include "common/ops/forward_ops.h"
#include "common/process/threads.h"
#include "tests/support/tiny_model.h"

namespace tandem {

TEST_CASE("The KV pool holds max_num_seqs longest sequences if they fit beside the weights") {
  const ModelSpec spec = testing::TinyModelSpec({});
  const int64_t block = KvBlockBytesOfAllLayers(spec, 2);
  KvPoolPlan plan;
  plan.memory_utilization = 0.5;
  plan.weight_bytes = 1 << 20;
  plan.max_num_seqs = 8;
  plan.max_model_len = 130;  // 3 blocks
  plan.device_bytes = 2 * (plan.weight_bytes + 100 * block);
  REQUIRE(PlanKvBlocks(spec, DType::kBFloat16, plan).value() == 24);
  plan.device_bytes = 2 * (plan.weight_bytes + 10 * block);
  REQUIRE(PlanKvBlocks(spec, DType::kBFloat16, plan).value() == 10);
}

TEST_CASE("A pool that cannot hold one longest sequence is refused with the keys to change") {
  const ModelSpec spec = testing::TinyModelSpec({});
  KvPoolPlan plan;
  plan.weight_bytes = 1 << 20;
  plan.max_model_len = 130;
  plan.device_bytes = 2 * (plan.weight_bytes + 2 * KvBlockBytesOfAllLayers(spec, 2));
  const auto refused = PlanKvBlocks(spec, DType::kBFloat16, plan);
  REQUIRE(refused.status().code() == absl::StatusCode::kResourceExhausted);
  const std::string message(refused.status().message());
  REQUIRE(message.find("rollout.gpu_memory_utilization") != std::string::npos);
  REQUIRE(message.find("rollout.max_model_len=130") != std::string::npos);
  plan.weight_bytes *= 100;  // weights alone exceed the bound
  REQUIRE(!PlanKvBlocks(spec, DType::kBFloat16, plan).ok());
}

TEST_CASE("KV blocks are copied in every layer, keep their addresses, and come back as zeros") {
  const ModelSpec spec = testing::TinyModelSpec({});
  Ledger ledger;
  const auto cache = KvCache::Create(HostDevice(), spec, DType::kBFloat16, 5, &ledger).value();
  REQUIRE(cache->Map().ok());
  const auto bytes = static_cast<size_t>(KvBlockBytesOfAllLayers(spec, 2) / spec.num_layers);
  REQUIRE(cache->layers().size() == static_cast<size_t>(spec.num_layers));
  const auto ops = CreateCpuForwardOps(DType::kBFloat16, std::make_shared<ThreadPool>(1)).value();
  for (const KvLayer& layer : cache->layers()) {
    std::memset(layer.base + bytes, 7, bytes);
    ops->CopyBlocks(AttentionShapeOf(spec), {{1, 4}}, layer);
  }
  for (const KvLayer& layer : cache->layers()) {
    REQUIRE(std::memcmp(layer.base + bytes, layer.base + 4 * bytes, bytes) == 0);
    REQUIRE(layer.base[3 * bytes] == std::byte{0});
  }
  const std::byte* address = cache->data();
  REQUIRE(cache->Release().ok());
  REQUIRE(cache->resident_bytes() == 0);
  REQUIRE(ledger.Snapshot().process_bytes > 0);
  REQUIRE(cache->Map().ok());
  REQUIRE(cache->data() == address);
  REQUIRE(cache->layers()[1].base[bytes] == std::byte{0});
}

}  // namespace tandem
