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
  int64_t sum = 0;
  for (const auto* lines : {&roomy.rollout, &roomy.trainer}) {
    for (const MemoryPlanLine& line : *lines) sum += line.bytes;
  }
  REQUIRE(roomy.awake_peak_bytes == sum);

  input.device_bytes = roomy.awake_peak_bytes;
  input.memory_utilization = 1;
  REQUIRE(PlanMemory(spec, input).needs_sleep());
  REQUIRE(roomy.Text().find("kv_cache") != std::string::npos);
}

namespace {

int64_t Line(const MemoryPlan& plan, const std::string& tag) {
  for (const MemoryPlanLine& line : plan.trainer) {
    if (line.tag == tag) return line.bytes;
  }
  FAIL("no line " << tag);
  return -1;
}

}  // namespace

TEST_CASE("The plan knows what ranks, a reference and the data type add", "[plan]") {
  const ModelSpec spec = SmallSpec();
  const int64_t parameters = spec.parameters();
  const int64_t globals = GlobalParameters(spec), layer = LayerParameters(spec);
  REQUIRE(globals + 2 * layer == parameters);
  MemoryPlanInput input{.device_bytes = int64_t{1} << 30, .max_num_seqs = 4, .max_model_len = 64};
  const MemoryPlan one = PlanMemory(spec, input);
  REQUIRE(Line(one, "gradients") == 4 * parameters);  // straight into the shard
  REQUIRE(Line(one, "gather") == 2 * parameters);
  REQUIRE(Line(one, "reference") == 0);

  input.pairs = 2;
  input.reference = true;
  input.element_bytes = 4;
  input.memory_utilization = 0.9;  // nothing may stay
  const MemoryPlan two = PlanMemory(spec, input);
  const int64_t shard = ShardParameters(spec, 0, 2);
  REQUIRE(Line(two, "gradients") == 4 * (shard + globals + layer));
  REQUIRE(Line(two, "gather") ==
          4 * (globals + layer + std::max(globals, layer) + EmbeddingParameters(spec)));
  REQUIRE(Line(two, "reference") == 4 * shard);
  REQUIRE(Line(two, "weights") == 4 * shard);
}

TEST_CASE("Activations are kept where they fit, and of no more tokens than a step has", "[plan]") {
  const ModelSpec spec = SmallSpec();
  MemoryPlanInput input{
      .device_bytes = int64_t{1} << 30, .micro_batch_tokens = 1000, .step_tokens = 100};
  const int64_t kept = Line(PlanMemory(spec, input), "activations");
  REQUIRE(kept > 100 * ActivationBytesPerToken(spec, false));
  input.step_tokens = 5000;
  REQUIRE(Line(PlanMemory(spec, input), "activations") == 10 * kept);
  input.recompute = "true";
  const int64_t recomputed = Line(PlanMemory(spec, input), "activations");
  REQUIRE(recomputed < 10 * kept);
  input.recompute = "auto";
  input.device_bytes = 1 << 20;  // too little for all of them
  REQUIRE(Line(PlanMemory(spec, input), "activations") == recomputed);
}

}  // namespace tandem
