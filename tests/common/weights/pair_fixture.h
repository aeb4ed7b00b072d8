// Models and names shared by the test of a pair of processes and the peers that it starts.
#pragma once

#include <string>

#include "common/model_spec/model_spec.h"

namespace tandem::testing {

// "tiny" has 20 tensors, for GPUs, emulated or not; the others 272. "full" has the shapes of a 135M
// model, an embedding of 54 MiB among them.
inline ModelSpec PairSpec(const std::string& size) {
  if (size == "tiny") {
    ModelSpec spec = PairSpec("small");
    spec.vocab_size = 301;
    spec.hidden_size = 48;
    spec.num_layers = 2;
    spec.head_dim = 16;
    spec.intermediate_size = 100;
    return spec;
  }
  const bool full = size == "full";
  ModelSpec spec;
  spec.model_type = "llama";
  spec.vocab_size = full ? 49152 : 3001;
  spec.hidden_size = full ? 576 : 96;
  spec.num_layers = 30;
  spec.num_heads = full ? 9 : 3;
  spec.num_kv_heads = full ? 3 : 1;
  spec.head_dim = full ? 64 : 32;
  spec.intermediate_size = full ? 1536 : 200;
  spec.max_position = 2048;
  spec.tie_word_embeddings = true;
  return spec;
}

}  // namespace tandem::testing
