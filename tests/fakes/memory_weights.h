// A small model's weights in memory: random bits of every pattern, as a source for publishers.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/base/status_macros.h"
#include "common/weights/layout.h"
#include "common/weights/weight_publisher.h"

namespace tandem::testing {

// Odd sizes: rows that are no multiple of 64 bytes, one-row norms, GQA, biases and q/k norms.
inline ModelSpec OddSpec(bool tied) {
  ModelSpec spec;
  spec.model_type = "qwen3";
  spec.vocab_size = 301;
  spec.hidden_size = 40;
  spec.num_layers = 3;
  spec.num_heads = 6;
  spec.num_kv_heads = 2;
  spec.head_dim = 10;
  spec.intermediate_size = 77;
  spec.max_position = 128;
  spec.tie_word_embeddings = tied;
  spec.qkv_bias = !tied;
  spec.qk_norm = true;
  return spec;
}

class MemoryWeights : public TensorSource {
 public:
  MemoryWeights(const WeightLayout& layout, uint64_t seed) {
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
    for (const TensorPlace& place : layout.places()) {
      std::vector<uint64_t> words((Bytes(layout, place) + 7) / 8);
      for (uint64_t& word : words) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word = state;
      }
      tensors_[place.name] = std::move(words);
    }
  }

  absl::StatusOr<const void*> Gather(const TensorPlace& place) override {
    gathered_.push_back(place.name);
    if (place.name == fail_at) return Internal("the shard of {} is gone", place.name);
    return static_cast<const void*>(tensors_.at(place.name).data());
  }

  static int64_t Bytes(const WeightLayout& layout, const TensorPlace& place) {
    return place.rows() * place.cols() * static_cast<int64_t>(DTypeBytes(layout.dtype()));
  }
  std::byte* tensor(const std::string& name) {
    return reinterpret_cast<std::byte*>(tensors_.at(name).data());
  }
  const std::vector<std::string>& gathered() const { return gathered_; }

  std::string fail_at;  // Gather fails there

 private:
  std::unordered_map<std::string, std::vector<uint64_t>> tensors_;
  std::vector<std::string> gathered_;
};

}  // namespace tandem::testing
