// The memory planned for a rollout on a GPU against what it allocates on an emulated one, which
// counts every byte.
#include <catch2/catch.hpp>

#include "common/backend/cuda_backend.h"
#include "common/lora/lora_spec.h"
#include "controller/plan/memory_plan.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/rollout_worker/engine_rig.h"

namespace tandem {
namespace {

using namespace tandem::testing;
using emulator::EmulatedCuda;

constexpr int64_t kDeviceBytes = int64_t{1} << 30;

TinyModelOptions PlannedModel() {
  return {.vocab_size = 3000,
          .hidden_size = 128,
          .num_layers = 3,
          .num_heads = 2,
          .num_kv_heads = 1,
          .head_dim = 64,
          .intermediate_size = 512};
}

RigOptions Sizes() {
  return {.max_num_seqs = 128, .max_num_batched_tokens = 256, .max_model_len = 600};
}

}  // namespace

TEST_CASE("A rollout takes of a GPU what is planned, at most a tenth less, awake and asleep") {
  const TinyWeights weights(PlannedModel(), DType::kBFloat16);
  // 0: without adapters beside the weights.
  const int64_t rank = GENERATE(0, 200);
  const LoraOptions lora = {
      .rank = rank, .alpha = 16, .target_modules = {"all-linear"}, .merge = false};
  const ModelSpec spec = WithAdapters(weights.spec, lora).value();
  auto* const cuda = new EmulatedCuda({.total_bytes = kDeviceBytes});
  const std::shared_ptr<Backend> backend =
      MakeCudaBackend(std::unique_ptr<CudaApi>(cuda), 0).value();
  EngineOptions options = MakeEngineTestOptions(weights, Sizes());
  options.spec = spec;
  options.backend = backend;
  options.load_weights = true;
  options.device_bytes = kDeviceBytes;
  const auto engine = Engine::Create(options).value();

  MemoryPlanInput input{.device_bytes = kDeviceBytes, .host_is_device = false};
  input.max_num_seqs = Sizes().max_num_seqs;
  input.batched_tokens = Sizes().max_num_batched_tokens;
  input.max_model_len = Sizes().max_model_len;
  input.memory_utilization = options.memory_utilization;
  input.free_cache_engine = "true";
  input.sleep_level = 2;
  input.adapters = spec.adapters;
  const MemoryPlan plan = PlanMemory(weights.spec, input);

  // More first tokens at once than a step has rows, and steps of several sizes.
  GenerateAll(*engine, MixedRequests({9, 40, 70}, 12, 5));
  const int64_t planned = plan.LedgerBytes(*plan.Find("generate"), false);
  const int64_t awake = cuda->peak_bytes();
  constexpr double kMib = 1 << 20;
  INFO("planned " << planned / kMib << " MiB, measured " << awake / kMib << " MiB");
  REQUIRE(planned >= awake);
  REQUIRE(static_cast<double>(planned) <= 1.1 * static_cast<double>(awake));
  // Nothing lies on the device that the ledger does not know.
  REQUIRE(engine->ledger().Snapshot().device_bytes == cuda->used_bytes());

  REQUIRE(Sleep(*engine, {.level = 2}).ok());
  const int64_t asleep = cuda->used_bytes();
  REQUIRE(engine->ledger().Snapshot().device_bytes == asleep);
  REQUIRE(plan.LedgerBytes(*plan.Find("train"), false) >= asleep);
}

}  // namespace tandem
