#include "common/model_spec/model_spec.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

ModelSpec SmolSpec() {
  ModelSpec spec;
  spec.model_type = "llama";
  spec.vocab_size = 49152;
  spec.hidden_size = 576;
  spec.num_layers = 30;
  spec.num_heads = 9;
  spec.num_kv_heads = 3;
  spec.head_dim = 64;
  spec.intermediate_size = 1536;
  spec.max_position = 8192;
  spec.rms_norm_eps = 1e-5f;
  spec.rope_theta = 100000.0;
  spec.tie_word_embeddings = true;
  spec.eos_token_ids = {2};
  spec.bos_token_id = 1;
  return spec;
}

std::vector<std::string> NamesOf(const ModelSpec& spec) {
  std::vector<std::string> names;
  for (const TensorSpec& tensor : HfTensors(spec)) names.push_back(tensor.name);
  return names;
}

void RequireSame(const ModelSpec& a, const ModelSpec& b) {
  REQUIRE(NamesOf(a) == NamesOf(b));
  REQUIRE(a.model_type == b.model_type);
  REQUIRE(a.parameters() == b.parameters());
  REQUIRE(a.num_heads == b.num_heads);
  REQUIRE(a.head_dim == b.head_dim);
  REQUIRE(a.max_position == b.max_position);
  REQUIRE(a.rms_norm_eps == b.rms_norm_eps);
  REQUIRE(a.rope_theta == b.rope_theta);
  REQUIRE(a.rope.type == b.rope.type);
  REQUIRE(a.rope.factor == b.rope.factor);
  REQUIRE(a.rope.low_freq_factor == b.rope.low_freq_factor);
  REQUIRE(a.rope.original_max_position == b.rope.original_max_position);
  REQUIRE(a.eos_token_ids == b.eos_token_ids);
  REQUIRE(a.bos_token_id == b.bos_token_id);
  REQUIRE(a.pad_token_id == b.pad_token_id);
}

}  // namespace

TEST_CASE("A tied llama has 9 tensors a layer, an embedding and a norm", "[model_spec]") {
  const std::vector<TensorSpec> tensors = HfTensors(SmolSpec());
  REQUIRE(tensors.size() == 30 * 9 + 2);
  REQUIRE(SmolSpec().parameters() == 134515008);
  REQUIRE(tensors.front().name == "model.embed_tokens.weight");
  REQUIRE(tensors.front().layer == -1);
  REQUIRE(tensors[3].name == "model.layers.0.self_attn.k_proj.weight");
  REQUIRE(tensors[3].shape == std::vector<int64_t>{192, 576});
  REQUIRE(tensors[3].layer == 0);
  REQUIRE(tensors.back().name == "model.norm.weight");
}

TEST_CASE("Tensors are listed in execution order for every model type", "[model_spec]") {
  ModelSpec spec = SmolSpec();
  spec.num_layers = 1;
  spec.tie_word_embeddings = false;
  spec.model_type = "qwen2";
  spec.qkv_bias = true;
  const std::string layer = "model.layers.0.";
  REQUIRE(NamesOf(spec) ==
          std::vector<std::string>{
              "model.embed_tokens.weight", layer + "input_layernorm.weight",
              layer + "self_attn.q_proj.weight", layer + "self_attn.q_proj.bias",
              layer + "self_attn.k_proj.weight", layer + "self_attn.k_proj.bias",
              layer + "self_attn.v_proj.weight", layer + "self_attn.v_proj.bias",
              layer + "self_attn.o_proj.weight", layer + "post_attention_layernorm.weight",
              layer + "mlp.gate_proj.weight", layer + "mlp.up_proj.weight",
              layer + "mlp.down_proj.weight", "model.norm.weight", "lm_head.weight"});
  spec.model_type = "qwen3";
  spec.qkv_bias = false;
  spec.qk_norm = true;
  const std::vector<TensorSpec> tensors = HfTensors(spec);
  REQUIRE(tensors[5].name == layer + "self_attn.q_norm.weight");
  REQUIRE(tensors[5].shape == std::vector<int64_t>{64});
}

TEST_CASE("A written config reads back as the same spec", "[model_spec]") {
  ModelSpec spec = SmolSpec();
  RequireSame(spec, ParseModelSpec(ModelConfigJson(spec), GenerationConfigJson(spec), "x").value());
  spec.rope = {RopeScaling::Type::kLlama3, 32.0, 1.0, 4.0, 8192};
  spec.eos_token_ids = {3, 5};
  spec.tie_word_embeddings = false;
  RequireSame(spec, ParseModelSpec(ModelConfigJson(spec), "", "x").value());
  spec.model_type = "qwen3";
  spec.qk_norm = true;
  spec.head_dim = 128;
  RequireSame(spec, ParseModelSpec(ModelConfigJson(spec), "", "x").value());
  spec.model_type = "qwen2";
  spec.qk_norm = false;
  spec.qkv_bias = true;
  RequireSame(spec, ParseModelSpec(ModelConfigJson(spec), "", "x").value());
}

TEST_CASE("A written config spells the epsilon as people do", "[model_spec]") {
  REQUIRE(ModelConfigJson(SmolSpec()).find("\"rms_norm_eps\": 1e-05") != std::string::npos);
}

}  // namespace tandem
