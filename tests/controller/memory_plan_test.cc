#include "controller/memory_plan.h"

#include <catch2/catch.hpp>

#include "common/model_spec/memory_formulas.h"

namespace tandem {
namespace {

ModelSpec SmallSpec() {
  const auto spec = ParseModelSpec(
      R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64,
          "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "vocab_size": 100, "rms_norm_eps": 1e-5,
          "rope_theta": 10000.0, "max_position_embeddings": 512, "tie_word_embeddings": true})",
      "", "config.json");
  REQUIRE(spec.ok());
  return *spec;
}

}  // namespace

TEST_CASE("The plan sleeps only when the KV pool and the training peak do not fit", "[plan]") {
  const ModelSpec spec = SmallSpec();
  MemoryPlanInput input{.device_bytes = int64_t{1} << 30,
                        .max_num_seqs = 64,
                        .max_model_len = 256,
                        .micro_batch_tokens = 1024,
                        .slot_bytes = 4 << 20};
  const MemoryPlan roomy = PlanMemory(spec, input);
  REQUIRE_FALSE(roomy.needs_sleep());
  REQUIRE(roomy.fits());
  REQUIRE(roomy.rollout[1].bytes == 64 * KvBlocksFor(256) * KvBlockBytes(spec));
  REQUIRE(roomy.awake_peak_bytes - roomy.asleep_peak_bytes == roomy.rollout[1].bytes);

  input.device_bytes = roomy.awake_peak_bytes;
  input.memory_utilization = 1;
  REQUIRE(PlanMemory(spec, input).needs_sleep());
  REQUIRE(roomy.Text().find("kv_cache") != std::string::npos);
}

}  // namespace tandem
