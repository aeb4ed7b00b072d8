// Shapes of the Qwen3 models that figures are given for, as their config.json has them.
#pragma once

#include <string>

#include "common/model_spec/model_spec.h"

namespace tandem::testing {

// "0.6b", "4b" or "8b"; "tiny" has their parts in sizes for the emulator. num_layers 0: unknown.
inline ModelSpec Qwen3(const std::string& size) {
  ModelSpec spec;
  spec.model_type = "qwen3";
  spec.vocab_size = 151936;
  spec.num_kv_heads = 8;
  spec.head_dim = 128;
  spec.max_position = 40960;
  spec.rope_theta = 1e6;
  spec.qk_norm = true;
  spec.tie_word_embeddings = size != "8b";
  const auto sizes = [&spec](int64_t hidden, int64_t layers, int64_t heads, int64_t intermediate) {
    spec.hidden_size = hidden;
    spec.num_layers = layers;
    spec.num_heads = heads;
    spec.intermediate_size = intermediate;
  };
  if (size == "0.6b") sizes(1024, 28, 16, 3072);
  if (size == "4b") sizes(2560, 36, 32, 9728);
  if (size == "8b") sizes(4096, 36, 32, 12288);
  if (size == "tiny") {
    sizes(64, 2, 4, 192);
    spec.vocab_size = 301;
    spec.num_kv_heads = 2;
    spec.head_dim = 16;
  }
  return spec;
}

}  // namespace tandem::testing
