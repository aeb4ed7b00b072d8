// Pointers into one group of a WeightLayout storage, in the form that Decoder uses.
#pragma once

#include <cstddef>

#include "common/model_spec/model_spec.h"
#include "common/ops/ops_types.h"
#include "common/weights/layout.h"

namespace tandem {

struct LayerWeights {
  const void* input_norm = nullptr;  // [hidden]
  LinearWeight qkv;                  // [q_rows + 2 kv_rows, hidden]
  const void* q_norm = nullptr;      // [head_dim], null unless the model has q/k norms
  const void* k_norm = nullptr;
  LinearWeight o;                   // [hidden, q_rows]
  const void* post_norm = nullptr;  // [hidden]
  LinearWeight gate_up;             // [2 intermediate, hidden]
  LinearWeight down;                // [hidden, intermediate]
};

struct GlobalWeights {
  LinearWeight embedding;  // [vocab, hidden]
  const void* final_norm = nullptr;
  LinearWeight head;  // the embedding itself when tied
};

// The same for a group of dense fp32 gradients (WeightLayout::group_elements).
struct LayerGradients {
  float* input_norm = nullptr;
  float* qkv = nullptr;
  float* qkv_bias = nullptr;
  float* q_norm = nullptr;
  float* k_norm = nullptr;
  float* o = nullptr;
  float* post_norm = nullptr;
  float* gate_up = nullptr;
  float* down = nullptr;
  // Gradients of adapters that are separate from the weights; not part of the group.
  LinearAdapterGradients qkv_adapter, o_adapter, gate_up_adapter, down_adapter;
};

struct GlobalGradients {
  float* embedding = nullptr;
  float* final_norm = nullptr;
  float* head = nullptr;  // the embedding's when tied: both uses add to one gradient
};

// `layer` matters only if `spec` has adapters, which may differ between layers; the rest is the
// same for every layer.
LayerWeights ViewLayer(const ModelSpec& spec,
                       const WeightLayout& layout,
                       const std::byte* group,
                       int layer);
GlobalWeights ViewGlobals(const ModelSpec& spec,
                          const WeightLayout& layout,
                          const std::byte* group);
// The gradients of every layer have the same layout.
LayerGradients ViewLayerGradients(const ModelSpec& spec, const WeightLayout& layout, float* group);
GlobalGradients ViewGlobalGradients(const ModelSpec& spec,
                                    const WeightLayout& layout,
                                    float* group);

AttentionShape AttentionShapeOf(const ModelSpec& spec);

}  // namespace tandem
