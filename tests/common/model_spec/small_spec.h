// A model small enough to compute its bytes by hand.
#pragma once

#include "common/model_spec/model_spec.h"

namespace tandem::testing {

inline ModelSpec SmallSpec() {
  ModelSpec spec;
  spec.model_type = "llama";
  spec.vocab_size = 100;
  spec.hidden_size = 8;
  spec.num_layers = 3;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = 4;
  spec.intermediate_size = 12;
  return spec;
}

}  // namespace tandem::testing
