// Models of every family and of awkward sizes, for tests of layouts and of transfers through them.
#pragma once

#include <string>
#include <vector>

#include "common/model_spec/model_spec.h"
#include "common/types/tensor_view.h"

namespace tandem::testing {

struct ZooModel {
  std::string name;
  ModelSpec spec;
  DType dtype = DType::kBFloat16;
};

// llama, qwen2 (biases) and qwen3 (q and k norms), tied and untied, in both dtypes; sizes that no
// panel, alignment or group divides; an MLP without rows (tensors of [0, n] and [n, 0]); a model
// whose norms, biases and embedding have one element.
inline std::vector<ZooModel> LayoutZoo() {
  std::vector<ZooModel> zoo;
  const auto add = [&zoo](const std::string& name, const ModelSpec& spec) {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
      zoo.push_back({name + " " + DTypeName(dtype), spec, dtype});
    }
  };
  for (const char* family : {"llama", "qwen2", "qwen3"}) {
    for (const bool tied : {true, false}) {
      ModelSpec spec;
      spec.model_type = family;
      spec.vocab_size = 101;
      spec.hidden_size = 40;
      spec.num_layers = 2;
      spec.num_heads = 3;
      spec.num_kv_heads = 1;
      spec.head_dim = 10;
      spec.intermediate_size = 77;
      spec.max_position = 64;
      spec.tie_word_embeddings = tied;
      spec.qkv_bias = spec.model_type == "qwen2";
      spec.qk_norm = spec.model_type == "qwen3";
      add(spec.model_type + (tied ? " tied" : " untied"), spec);
    }
  }
  ModelSpec spec = zoo.back().spec;
  spec.qkv_bias = true;
  add("biases and norms", spec);
  spec.intermediate_size = 0;
  add("zero-size tensors", spec);
  spec.vocab_size = spec.hidden_size = spec.num_heads = spec.num_kv_heads = spec.num_layers = 1;
  spec.head_dim = 2;
  spec.intermediate_size = 1;
  add("one-element tensors", spec);
  // Rows and panels that lie exactly on every alignment.
  spec = zoo.front().spec;
  spec.vocab_size = 256;
  spec.hidden_size = spec.intermediate_size = 128;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = 32;
  add("round sizes", spec);
  return zoo;
}

}  // namespace tandem::testing
