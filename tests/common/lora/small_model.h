// A model small enough to list its modules by hand.
#pragma once

#include "common/model_spec/model_spec.h"

namespace tandem::testing {

// Two layers, hidden 8, 2 heads of 4, 1 KV head, inner width 12, 20 rows of vocabulary.
inline ModelSpec SmallModel(bool tied) {
  ModelSpec spec;
  spec.model_type = "llama";
  spec.vocab_size = 20;
  spec.hidden_size = 8;
  spec.num_layers = 2;
  spec.num_heads = 2;
  spec.num_kv_heads = 1;
  spec.head_dim = 4;
  spec.intermediate_size = 12;
  spec.max_position = 64;
  spec.tie_word_embeddings = tied;
  return spec;
}

}  // namespace tandem::testing
