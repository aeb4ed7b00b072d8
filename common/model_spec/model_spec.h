// The description of a model, read from an HF checkpoint directory: sizes, names and shapes. Has no
// LibTorch, so that the controller can plan a run before any worker starts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace tandem {

// How rotary frequencies are scaled. Formulas: rope.h.
struct RopeScaling {
  enum class Type { kNone, kLlama3 };
  Type type = Type::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_position = 0;  // tokens that the model was trained on before scaling
  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

// Low-rank adapters that are computed separately from their weights and not merged into them:
// y = W x + s B (A x).
struct ModelAdapters {
  int64_t rank = 0;                  // 0: none
  double scaling = 1;                // s = alpha / rank
  std::vector<std::string> weights;  // HF tensors of layers that have one, in HfTensors' order
};

struct ModelSpec {
  std::string model_type;   // "llama", "qwen2" or "qwen3"
  int64_t vocab_size = 0;   // embedding rows; may exceed the tokenizer's ids
  int64_t hidden_size = 0;  // width of the residual stream
  int64_t num_layers = 0;
  int64_t num_heads = 0;     // query heads
  int64_t num_kv_heads = 0;  // divides num_heads
  int64_t head_dim = 0;      // even; num_heads * head_dim may differ from hidden_size
  int64_t intermediate_size = 0;
  int64_t max_position = 0;  // tokens
  float rms_norm_eps = 1e-6f;
  double rope_theta = 10000.0;
  RopeScaling rope;
  bool tie_word_embeddings = false;    // the head is the embedding; no lm_head tensor
  bool qkv_bias = false;               // qwen2
  bool qk_norm = false;                // qwen3: RMSNorm over head_dim of q and k, before RoPE
  std::vector<int32_t> eos_token_ids;  // generation_config.json's if it names any, else config's
  int32_t bos_token_id = -1;           // -1: the config names none
  int32_t pad_token_id = -1;
  ModelAdapters adapters;  // not part of any checkpoint: set if model.lora.merge is false

  int64_t q_rows() const { return num_heads * head_dim; }
  int64_t kv_rows() const { return num_kv_heads * head_dim; }    // rows of k, and of v
  int64_t qkv_rows() const { return q_rows() + 2 * kv_rows(); }  // of a fused q, k, v weight
  int64_t parameters() const;  // elements of HfTensors(); a tied head counts once
};

// Reads model_dir/config.json and, if there, generation_config.json. NotFound names a missing file;
// InvalidArgument names the key of a malformed value; Unimplemented names the model type or feature
// that is not supported (sliding window, biases elsewhere than qwen2's, other rope types, other
// activations, quantised weights) and what to do.
absl::StatusOr<ModelSpec> LoadModelSpec(const std::string& model_dir);

// The same for texts; an empty `generation_config` means that there is no such file. `source` names
// the config in errors.
absl::StatusOr<ModelSpec> ParseModelSpec(const std::string& config,
                                         const std::string& generation_config,
                                         const std::string& source);

struct TensorSpec {
  std::string name;            // HF spelling
  std::vector<int64_t> shape;  // [out, in] for a projection, [n] for a norm or bias
  int layer = -1;              // -1: not part of a decoder layer
};

// Every tensor of the checkpoint, HF names and unfused shapes, in execution order: embedding,
// layers, final norm, head (only when untied).
std::vector<TensorSpec> HfTensors(const ModelSpec& spec);

// A [rank, in] and B [out, rank] of every adapter of spec.adapters, named after their module:
// "model.layers.0.mlp.up_proj.lora_A.weight". HfTensors does not contain them.
std::vector<TensorSpec> AdapterTensors(const ModelSpec& spec);

// One of a layer's four products. Its parts are HF tensors that are stored one after another, and
// so are the parts' adapters.
struct AdaptedProduct {
  const char* stored_as = "";        // "qkv", "o", "gate_up" or "down"
  std::vector<const char*> modules;  // of the parts: "self_attn.q_proj"
  std::vector<int64_t> rows;         // of the parts
  int64_t in = 0;                    // columns
  bool any = false;                  // some part of some layer has an adapter
  int64_t parts() const { return static_cast<int64_t>(modules.size()); }
  int64_t out() const;  // rows of all parts
};
// In the order qkv, o, gate_up, down.
std::vector<AdaptedProduct> AdaptedProducts(const ModelSpec& spec);
// Whether this part of the product has an adapter in `layer`.
bool HasAdapter(const ModelSpec& spec, int layer, const char* module);

// The HF config.json that LoadModelSpec reads as the same spec; `dtype` in torch's spelling.
std::string ModelConfigJson(const ModelSpec& spec, const std::string& dtype = "bfloat16");
// The HF generation_config.json: token ids only.
std::string GenerationConfigJson(const ModelSpec& spec);

}  // namespace tandem
