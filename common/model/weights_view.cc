#include "common/model/weights_view.h"

#include <string>

#include "common/base/check.h"

namespace tandem {
namespace {

const void* At(const std::byte* group, int64_t offset) {
  return offset < 0 ? nullptr : group + offset;
}

LinearWeight Linear(const std::byte* group,
                    int64_t offset,
                    int64_t rows,
                    int64_t cols,
                    const void* bias = nullptr) {
  return LinearWeight{group + offset, rows, cols, bias};
}

// Modules of a layer, as keys that do not depend on the choice of targets.
constexpr int64_t kLayerModules = 16;

// The product's adapters in one layer; no parts where it has none. `module` is its first part's.
LinearAdapter Adapter(const ModelSpec& spec,
                      const AdaptedProduct& product,
                      const AdapterOffsets& at,
                      const std::byte* group,
                      int layer,
                      int64_t module) {
  LinearAdapter adapter;
  bool any = false;
  int64_t row = 0;
  for (size_t i = 0; i < product.modules.size(); row += product.rows[i++]) {
    const bool has = product.any && HasAdapter(spec, layer, product.modules[i]);
    adapter.part[i] = {row, has ? product.rows[i] : 0, module + static_cast<int64_t>(i)};
    any = any || has;
  }
  if (!any) return LinearAdapter();
  adapter.parts = static_cast<int>(product.parts());
  adapter.a = group + at.a;
  adapter.b = group + at.b;
  adapter.rank = spec.adapters.rank;
  adapter.scaling = static_cast<float>(spec.adapters.scaling);
  return adapter;
}

float* GradientOf(const WeightLayout& layout, const std::string& name, float* group) {
  const auto place = layout.Find(name);
  TANDEM_CHECK(place.ok(), name);
  return group + (*place)->gradient_offset;
}

}  // namespace

AttentionShape AttentionShapeOf(const ModelSpec& spec) {
  return AttentionShape{spec.num_heads, spec.num_kv_heads, spec.head_dim};
}

LayerWeights ViewLayer(const ModelSpec& spec,
                       const WeightLayout& layout,
                       const std::byte* group,
                       int layer) {
  const LayerOffsets& at = layout.layer_offsets();
  LayerWeights view;
  view.input_norm = At(group, at.input_norm);
  view.qkv = Linear(group, at.qkv, spec.qkv_rows(), spec.hidden_size, At(group, at.qkv_bias));
  view.q_norm = At(group, at.q_norm);
  view.k_norm = At(group, at.k_norm);
  view.o = Linear(group, at.o, spec.hidden_size, spec.q_rows());
  view.post_norm = At(group, at.post_norm);
  view.gate_up = Linear(group, at.gate_up, 2 * spec.intermediate_size, spec.hidden_size);
  view.down = Linear(group, at.down, spec.hidden_size, spec.intermediate_size);
  if (spec.adapters.rank == 0) return view;
  const std::vector<AdaptedProduct> products = AdaptedProducts(spec);
  const AdapterOffsets offsets[] = {at.qkv_adapter, at.o_adapter, at.gate_up_adapter,
                                    at.down_adapter};
  LinearWeight* const weights[] = {&view.qkv, &view.o, &view.gate_up, &view.down};
  int64_t module = layer * kLayerModules;
  for (size_t i = 0; i < products.size(); module += products[i++].parts()) {
    weights[i]->adapter = Adapter(spec, products[i], offsets[i], group, layer, module);
  }
  return view;
}

GlobalWeights ViewGlobals(const ModelSpec& spec,
                          const WeightLayout& layout,
                          const std::byte* group) {
  const GlobalOffsets& at = layout.global_offsets();
  GlobalWeights view;
  view.embedding = Linear(group, at.embedding, spec.vocab_size, spec.hidden_size);
  view.final_norm = At(group, at.final_norm);
  view.head = Linear(group, at.head, spec.vocab_size, spec.hidden_size);
  return view;
}

LayerGradients ViewLayerGradients(const ModelSpec& spec, const WeightLayout& layout, float* group) {
  const std::string layer = "model.layers.0.";
  LayerGradients view;
  view.input_norm = GradientOf(layout, layer + "input_layernorm.weight", group);
  view.qkv = GradientOf(layout, layer + "self_attn.q_proj.weight", group);
  if (spec.qkv_bias) view.qkv_bias = GradientOf(layout, layer + "self_attn.q_proj.bias", group);
  if (spec.qk_norm) {
    view.q_norm = GradientOf(layout, layer + "self_attn.q_norm.weight", group);
    view.k_norm = GradientOf(layout, layer + "self_attn.k_norm.weight", group);
  }
  view.o = GradientOf(layout, layer + "self_attn.o_proj.weight", group);
  view.post_norm = GradientOf(layout, layer + "post_attention_layernorm.weight", group);
  view.gate_up = GradientOf(layout, layer + "mlp.gate_proj.weight", group);
  view.down = GradientOf(layout, layer + "mlp.down_proj.weight", group);
  return view;
}

GlobalGradients ViewGlobalGradients(const ModelSpec& spec,
                                    const WeightLayout& layout,
                                    float* group) {
  GlobalGradients view;
  view.embedding = GradientOf(layout, "model.embed_tokens.weight", group);
  view.final_norm = GradientOf(layout, "model.norm.weight", group);
  view.head =
      spec.tie_word_embeddings ? view.embedding : GradientOf(layout, "lm_head.weight", group);
  return view;
}

}  // namespace tandem
