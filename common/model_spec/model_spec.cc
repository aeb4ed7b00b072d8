#include "common/model_spec/model_spec.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <unordered_set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/model_spec/model_family.h"
#include "common/types/tensor_view.h"

namespace tandem {
namespace {

void AppendLayer(const ModelSpec& spec, int layer, std::vector<TensorSpec>& tensors) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const int64_t hidden = spec.hidden_size;
  auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    tensors.push_back({prefix + name, std::move(shape), layer});
  };
  auto add_projection = [&](const std::string& name, int64_t rows) {
    add("self_attn." + name + ".weight", {rows, hidden});
    if (spec.qkv_bias) add("self_attn." + name + ".bias", {rows});
  };
  add("input_layernorm.weight", {hidden});
  add_projection("q_proj", spec.q_rows());
  add_projection("k_proj", spec.kv_rows());
  add_projection("v_proj", spec.kv_rows());
  if (spec.qk_norm) {
    add("self_attn.q_norm.weight", {spec.head_dim});
    add("self_attn.k_norm.weight", {spec.head_dim});
  }
  add("self_attn.o_proj.weight", {hidden, spec.q_rows()});
  add("post_attention_layernorm.weight", {hidden});
  add("mlp.gate_proj.weight", {spec.intermediate_size, hidden});
  add("mlp.up_proj.weight", {spec.intermediate_size, hidden});
  add("mlp.down_proj.weight", {hidden, spec.intermediate_size});
}

// One id as a number, several as a list, none as null: HF's three spellings.
nlohmann::json TokenIdsJson(const std::vector<int32_t>& ids) {
  if (ids.empty()) return nullptr;
  if (ids.size() == 1) return ids[0];
  return ids;
}

nlohmann::json TokenIdJson(int32_t id) {
  return id < 0 ? nlohmann::json(nullptr) : nlohmann::json(id);
}

// `bare` is the older rope_scaling, which does not carry the base.
nlohmann::json RopeJson(const ModelSpec& spec, bool bare) {
  nlohmann::json rope = {{"rope_type", "default"}};
  if (spec.rope.type == RopeScaling::Type::kLlama3) {
    rope = {{"rope_type", "llama3"},
            {"factor", spec.rope.factor},
            {"low_freq_factor", spec.rope.low_freq_factor},
            {"high_freq_factor", spec.rope.high_freq_factor},
            {"original_max_position_embeddings", spec.rope.original_max_position}};
  } else if (bare) {
    return nullptr;
  }
  if (!bare) rope["rope_theta"] = spec.rope_theta;
  return rope;
}

constexpr std::string_view kWeightSuffix = ".weight";

// The shortest decimal that reads back as the same float: 1e-05, not 9.99999974737875e-06.
double ShortestDecimal(float value) { return std::stod(fmt::format("{}", value)); }

}  // namespace

int64_t ModelSpec::parameters() const {
  int64_t count = 0;
  for (const TensorSpec& tensor : HfTensors(*this)) count += NumElements(tensor.shape);
  return count;
}

std::vector<TensorSpec> HfTensors(const ModelSpec& spec) {
  std::vector<TensorSpec> tensors;
  tensors.push_back({"model.embed_tokens.weight", {spec.vocab_size, spec.hidden_size}, -1});
  for (int layer = 0; layer < spec.num_layers; ++layer) AppendLayer(spec, layer, tensors);
  tensors.push_back({"model.norm.weight", {spec.hidden_size}, -1});
  if (!spec.tie_word_embeddings) {
    tensors.push_back({"lm_head.weight", {spec.vocab_size, spec.hidden_size}, -1});
  }
  return tensors;
}

int64_t AdaptedProduct::out() const {
  return std::accumulate(rows.begin(), rows.end(), int64_t{0});
}

bool HasAdapter(const ModelSpec& spec, int layer, const char* module) {
  const std::string weight = fmt::format("model.layers.{}.{}.weight", layer, module);
  const std::vector<std::string>& weights = spec.adapters.weights;
  return std::find(weights.begin(), weights.end(), weight) != weights.end();
}

std::vector<AdaptedProduct> AdaptedProducts(const ModelSpec& spec) {
  const int64_t hidden = spec.hidden_size, inner = spec.intermediate_size, kv = spec.kv_rows();
  std::vector<AdaptedProduct> products = {
      {"qkv",
       {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
       {spec.q_rows(), kv, kv},
       hidden},
      {"o", {"self_attn.o_proj"}, {hidden}, spec.q_rows()},
      {"gate_up", {"mlp.gate_proj", "mlp.up_proj"}, {inner, inner}, hidden},
      {"down", {"mlp.down_proj"}, {hidden}, inner}};
  for (AdaptedProduct& product : products) {
    for (const std::string& weight : spec.adapters.weights) {
      product.any = product.any || std::any_of(product.modules.begin(), product.modules.end(),
                                               [&](const char* module) {
                                                 return weight.find(module) != std::string::npos;
                                               });
    }
  }
  return products;
}

std::vector<TensorSpec> AdapterTensors(const ModelSpec& spec) {
  std::vector<TensorSpec> tensors;
  if (spec.adapters.rank == 0) return tensors;
  const std::vector<std::string>& weights = spec.adapters.weights;
  const std::unordered_set<std::string> adapted(weights.begin(), weights.end());
  for (const TensorSpec& tensor : HfTensors(spec)) {
    if (adapted.count(tensor.name) == 0) continue;
    const std::string module = tensor.name.substr(0, tensor.name.size() - kWeightSuffix.size());
    tensors.push_back(
        {module + ".lora_A.weight", {spec.adapters.rank, tensor.shape[1]}, tensor.layer});
    tensors.push_back(
        {module + ".lora_B.weight", {tensor.shape[0], spec.adapters.rank}, tensor.layer});
  }
  return tensors;
}

std::string ModelConfigJson(const ModelSpec& spec, const std::string& dtype) {
  // A model_type without a family is written as well; LoadModelSpec refuses the file.
  static constexpr ModelFamily kUnknownFamily = {.architecture = "unknown"};
  const ModelFamily* known = FindModelFamily(spec.model_type);
  const ModelFamily& family = known == nullptr ? kUnknownFamily : *known;
  nlohmann::json config = {{"architectures", {std::string(family.architecture)}},
                           {"model_type", spec.model_type},
                           {"vocab_size", spec.vocab_size},
                           {"hidden_size", spec.hidden_size},
                           {"num_hidden_layers", spec.num_layers},
                           {"num_attention_heads", spec.num_heads},
                           {"num_key_value_heads", spec.num_kv_heads},
                           {"head_dim", spec.head_dim},
                           {"intermediate_size", spec.intermediate_size},
                           {"max_position_embeddings", spec.max_position},
                           {"rms_norm_eps", ShortestDecimal(spec.rms_norm_eps)},
                           {"rope_theta", spec.rope_theta},
                           {"rope_scaling", RopeJson(spec, true)},
                           {"rope_parameters", RopeJson(spec, false)},
                           {"tie_word_embeddings", spec.tie_word_embeddings},
                           {"hidden_act", "silu"},
                           {"attention_dropout", 0.0},
                           {"initializer_range", 0.02},
                           {"use_cache", true},
                           {"dtype", dtype},
                           {"torch_dtype", dtype},
                           {"bos_token_id", TokenIdJson(spec.bos_token_id)},
                           {"eos_token_id", TokenIdsJson(spec.eos_token_ids)},
                           {"pad_token_id", TokenIdJson(spec.pad_token_id)}};
  for (const std::string_view key : family.exported_false) config[std::string(key)] = false;
  return config.dump(2) + "\n";
}

std::string GenerationConfigJson(const ModelSpec& spec) {
  nlohmann::json config = {{"_from_model_config", true},
                           {"bos_token_id", TokenIdJson(spec.bos_token_id)},
                           {"eos_token_id", TokenIdsJson(spec.eos_token_ids)},
                           {"pad_token_id", TokenIdJson(spec.pad_token_id)}};
  return config.dump(2) + "\n";
}

}  // namespace tandem
