#include "controller/plan/plan_advice.h"

#include <algorithm>
#include <iterator>

#include <catch2/catch.hpp>

#include "controller/plan/plan_input.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

ModelSpec AdvisedSpec() {
  const auto spec = ParseModelSpec(
      R"({"model_type": "llama", "hidden_size": 512, "intermediate_size": 1024,
          "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4,
          "vocab_size": 32000, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
          "max_position_embeddings": 2048, "tie_word_embeddings": true})",
      "", "config.json");
  REQUIRE(spec.ok());
  return *spec;
}

bool Names(const std::vector<PlanAdvice>& advices, const std::string& key) {
  return std::any_of(advices.begin(), advices.end(), [&](const PlanAdvice& advice) {
    return advice.setting.find(key) != std::string::npos;
  });
}

}  // namespace

TEST_CASE("Advice names changes with what each saves, and only where they help", "[plan]") {
  const ModelSpec spec = AdvisedSpec();
  v1::Config config = DefaultConfig();
  config.mutable_rollout()->set_free_cache_engine("false");
  constexpr int64_t kGib = int64_t{1} << 30;
  const MemoryPlan roomy = PlanMemory(spec, MakeMemoryPlanInput(spec, config, 64 * kGib));
  REQUIRE(AdviseOnMemory(spec, config, 64 * kGib, PlanTarget::kGpu).alone.empty());  // it fits

  const int64_t device = roomy.peak_bytes() / 2;
  REQUIRE_FALSE(PlanMemory(spec, MakeMemoryPlanInput(spec, config, device)).fits());
  const PlanAdvices advices = AdviseOnMemory(spec, config, device, PlanTarget::kGpu);
  REQUIRE(Names(advices.alone, "rollout.free_cache_engine=true"));
  REQUIRE(Names(advices.alone, "optimizer_offload=true"));
  REQUIRE_FALSE(Names(advices.alone, "ref.offload"));  // no reference is kept
  REQUIRE_FALSE(Names(advices.alone, "reshard"));      // a single trainer gathers nothing
  for (const PlanAdvice& advice : advices.alone) REQUIRE(advice.saved_bytes > 0);
  // Where pairs share a host, more of them are no more memory.
  REQUIRE(Names(advices.alone, "cluster.trainers=2 cluster.rollouts=2 (with a device each)"));
  REQUIRE_FALSE(Names(AdviseOnMemory(spec, config, device, PlanTarget::kHostShare).alone,
                      "cluster.trainers"));
  // A total without the numbers that the user gave would be refused.
  config.mutable_trainer()->set_n_gpus_per_node(1);
  REQUIRE(Names(AdviseOnMemory(spec, config, device, PlanTarget::kGpu).alone,
                "cluster.trainers=2 trainer.n_gpus_per_node=2 cluster.rollouts=2 (with"));
}

TEST_CASE("No advice gives a rollout more than the device", "[plan]") {
  const ModelSpec spec = AdvisedSpec();
  v1::Config config = DefaultConfig();
  config.mutable_rollout()->set_gpu_memory_utilization(0.01);
  int shares = 0;
  for (int64_t device = int64_t{8} << 20; device < int64_t{4} << 30; device *= 2) {
    const PlanAdvices advices = AdviseOnMemory(spec, config, device, PlanTarget::kGpu);
    for (const auto& list : {advices.alone, advices.together}) {
      for (const PlanAdvice& advice : list) {
        const std::string key = "rollout.gpu_memory_utilization=";
        if (advice.setting.find(key) != 0) continue;
        REQUIRE(std::stod(advice.setting.substr(key.size())) <= 1);
        ++shares;
      }
    }
  }
  REQUIRE(shares > 0);
}

TEST_CASE("Changes that only fit together are listed together", "[plan]") {
  const ModelSpec spec = AdvisedSpec();
  v1::Config config = DefaultConfig();
  config.mutable_rollout()->set_free_cache_engine("true");
  config.mutable_model()->set_enable_gradient_checkpointing("true");
  config.mutable_rollout()->set_max_num_seqs(4);
  const MemoryPlan plan = PlanMemory(spec, MakeMemoryPlanInput(spec, config, int64_t{64} << 30));
  // As little as leaves no single change enough.
  for (int64_t device = plan.peak_bytes(); device > plan.peak_bytes() / 4;
       device -= plan.peak_bytes() / 50) {
    const PlanAdvices advices = AdviseOnMemory(spec, config, device, PlanTarget::kGpu);
    if (advices.together.empty()) continue;
    REQUIRE(advices.together.size() > 1);
    REQUIRE(advices.least_bytes <= device);
    return;
  }
  FAIL("no device between a quarter and all of the peak needs several changes");
}

TEST_CASE("Half of the rank is advised with half of alpha, where there is a half to take",
          "[plan][lora]") {
  const ModelSpec spec = AdvisedSpec();
  // Of the largest device that all does not fit on and a smaller rank helps.
  const auto advised = [&spec](int64_t rank, const std::string& adapter_path) {
    v1::Config config = DefaultConfig();
    config.mutable_rollout()->set_free_cache_engine("true");
    v1::Lora* const lora = config.mutable_model()->mutable_lora();
    lora->set_rank(rank);
    lora->set_alpha(static_cast<double>(rank) * 1.5);
    lora->set_adapter_path(adapter_path);
    std::vector<PlanAdvice> found;
    for (int64_t mib = 4096; mib >= 128 && found.empty(); mib -= 128) {
      const PlanAdvices advices = AdviseOnMemory(spec, config, mib << 20, PlanTarget::kGpu);
      // Masters are those of adapters alone, which no offloading moves.
      if (rank > 0) REQUIRE_FALSE(Names(advices.alone, "param_offload"));
      std::copy_if(
          advices.alone.begin(), advices.alone.end(), std::back_inserter(found),
          [](const PlanAdvice& advice) { return advice.setting.starts_with("model.lora.rank"); });
    }
    return found;
  };
  const std::vector<PlanAdvice> half = advised(512, "");
  REQUIRE(half.size() == 1);
  REQUIRE(half[0].setting == "model.lora.rank=256 model.lora.alpha=384");
  // Masters, gradients and both moments of half of the adapters at the least.
  const int64_t per_rank = 8 * (2 * (512 + 512) + 2 * (512 + 256) + 3 * (512 + 1024));
  REQUIRE(half[0].saved_bytes >= 256 * per_rank * 16);
  REQUIRE(advised(511, "").empty());
  REQUIRE(advised(512, "/adapter").empty());
  REQUIRE(advised(0, "").empty());
}

}  // namespace tandem
