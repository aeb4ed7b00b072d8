#include "common/backend/model_linears.h"

#include <algorithm>

#include "common/ops/cuda/linear/head_groups.h"

namespace tandem {
namespace {

using Use = LinearShape::Use;

// The weights of a layer as the executing model has them: fused.
std::vector<LinearShape> LayerLinears(const ModelSpec& spec) {
  return {{.n = spec.qkv_rows(), .k = spec.hidden_size, .bias = spec.qkv_bias},
          {.n = spec.hidden_size, .k = spec.q_rows()},
          {.n = 2 * spec.intermediate_size, .k = spec.hidden_size},
          {.n = spec.hidden_size, .k = spec.intermediate_size}};
}

}  // namespace

std::vector<LinearShape> ModelLinears(const ModelSpec& spec, int64_t vocab_limit, bool trains) {
  std::vector<LinearShape> shapes = LayerLinears(spec);
  const int64_t groups = HeadGroups(vocab_limit);
  // All groups have the same ids but the last, in the forward up to the head's, in backward up to
  // the tokenizer's.
  for (const int64_t i : {int64_t{0}, groups - 1}) {
    shapes.push_back({.use = Use::kLogits,
                      .n = HeadGroupAt(i, spec.vocab_size, vocab_limit).ids,
                      .k = spec.hidden_size});
  }
  if (!trains) return shapes;
  for (LinearShape layer : LayerLinears(spec)) {
    layer.use = Use::kInput;
    layer.bias = false;
    shapes.push_back(layer);
  }
  for (const int64_t i : {int64_t{0}, groups - 1}) {
    shapes.push_back({.use = Use::kAddInput,
                      .n = HeadGroupAt(i, vocab_limit, vocab_limit).ids,
                      .k = spec.hidden_size});
  }
  // The q and k rows of qkv alone, computed again where they were normed in place.
  if (spec.qk_norm) {
    shapes.push_back(
        {.n = spec.q_rows() + spec.kv_rows(), .k = spec.hidden_size, .bias = spec.qkv_bias});
  }
  return shapes;
}

}  // namespace tandem
