// A family of models: what a model_type of config.json implies beyond the sizes that the file
// states. To add one whose layers are made of known parts, add a source to families/ that defines
//   extern const ModelFamily kQwen3Family = {.architecture = "Qwen3ForCausalLM", ...};
// Its model_type is the symbol's name in snake case, qwen3: the build finds it
// (deploy/cmake/TandemRegistry.cmake).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tandem {

// The parts that a decoder layer is built from (common/model/layer.h).
enum class DecoderLayerKind { kAttentionSwiglu };

struct ModelFamily {
  std::string_view architecture;  // the class in transformers
  DecoderLayerKind layer = DecoderLayerKind::kAttentionSwiglu;
  bool qkv_bias = false;         // q, k and v projections have biases
  bool qk_norm = false;          // RMSNorm over head_dim of q and k, before RoPE
  int64_t default_head_dim = 0;  // where config.json has none; 0: hidden_size / num_attention_heads
  // In GGUF files of this architecture, rows 2i and 2i + 1 of a q or k head are rows that are half
  // a head apart in the checkpoint.
  bool gguf_interleaves_heads = false;
  // Keys that an exported config.json has with the value false, as transformers writes them.
  std::span<const std::string_view> exported_false = {};
};

// By model_type, which is GGUF's general.architecture too. Null: not supported.
const ModelFamily* FindModelFamily(const std::string& model_type);

// "llama, qwen2 or qwen3", for messages.
std::string ModelFamilyNames();

}  // namespace tandem
