// The model's sizes from GGUF metadata.
#include "common/base/status_macros.h"
#include "common/formats/gguf/gguf_import.h"

namespace tandem {
namespace {

absl::Status Refuse(const GgufFile& file, const std::string& what) {
  return MakeStatus(absl::StatusCode::kUnimplemented,
                    "{}: {} is not supported in a GGUF; use the model's Hugging Face directory",
                    file.path(), what);
}

absl::Status RefuseUnsupported(const GgufFile& file, const std::string& arch) {
  for (const char* key : {"expert_count", "attention.sliding_window"}) {
    const std::string full = arch + "." + key;
    if (!file.HasKey(full)) continue;
    TANDEM_ASSIGN_OR_RETURN(const int64_t value, file.Integer(full));
    if (value != 0) return Refuse(file, fmt::format("{} = {}", full, value));
  }
  const std::string scaling = arch + ".rope.scaling.type";
  if (file.HasKey(scaling)) {
    TANDEM_ASSIGN_OR_RETURN(const std::string type, file.Text(scaling));
    if (type != "none") return Refuse(file, fmt::format("{} = {}", scaling, type));
  }
  // Stretched frequencies without the parameters that made them.
  if (file.Find("rope_freqs.weight") != nullptr) {
    return Refuse(file, "llama3 rope scaling (tensor rope_freqs.weight)");
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> PositiveInteger(const GgufFile& file, const std::string& key) {
  TANDEM_ASSIGN_OR_RETURN(const int64_t value, file.Integer(key));
  if (value <= 0 || value > INT32_MAX) {
    return InvalidArgument("{}: metadata key {} is {}", file.path(), key, value);
  }
  return value;
}

absl::Status ReadHeads(const GgufFile& file, const std::string& arch, ModelSpec& spec) {
  TANDEM_ASSIGN_OR_RETURN(spec.num_heads, PositiveInteger(file, arch + ".attention.head_count"));
  spec.num_kv_heads = spec.num_heads;
  if (const std::string key = arch + ".attention.head_count_kv"; file.HasKey(key)) {
    TANDEM_ASSIGN_OR_RETURN(spec.num_kv_heads, PositiveInteger(file, key));
  }
  spec.head_dim = spec.hidden_size / spec.num_heads;
  if (const std::string key = arch + ".attention.key_length"; file.HasKey(key)) {
    TANDEM_ASSIGN_OR_RETURN(spec.head_dim, PositiveInteger(file, key));
  }
  if (const std::string key = arch + ".rope.dimension_count"; file.HasKey(key)) {
    TANDEM_ASSIGN_OR_RETURN(const int64_t rotated, PositiveInteger(file, key));
    if (rotated != spec.head_dim) {
      return Refuse(file, fmt::format("rotating {} of {} head dimensions", rotated, spec.head_dim));
    }
  }
  if (spec.num_heads % spec.num_kv_heads != 0 || spec.head_dim % 2 != 0) {
    return InvalidArgument("{}: {} heads, {} KV heads of {} do not fit together", file.path(),
                           spec.num_heads, spec.num_kv_heads, spec.head_dim);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelSpec> GgufModelSpec(const GgufFile& file) {
  ModelSpec spec;
  TANDEM_ASSIGN_OR_RETURN(const std::string arch, file.Text("general.architecture"));
  if (arch != "llama" && arch != "qwen2" && arch != "qwen3") {
    return MakeStatus(absl::StatusCode::kUnimplemented,
                      "{}: architecture {} is not supported; use a llama, qwen2 or qwen3 model",
                      file.path(), arch);
  }
  TANDEM_RETURN_IF_ERROR(RefuseUnsupported(file, arch));
  spec.model_type = arch;
  spec.qkv_bias = arch == "qwen2";
  spec.qk_norm = arch == "qwen3";
  TANDEM_ASSIGN_OR_RETURN(spec.hidden_size, PositiveInteger(file, arch + ".embedding_length"));
  TANDEM_ASSIGN_OR_RETURN(spec.num_layers, PositiveInteger(file, arch + ".block_count"));
  TANDEM_ASSIGN_OR_RETURN(spec.intermediate_size,
                          PositiveInteger(file, arch + ".feed_forward_length"));
  TANDEM_ASSIGN_OR_RETURN(spec.max_position, PositiveInteger(file, arch + ".context_length"));
  TANDEM_RETURN_IF_ERROR(ReadHeads(file, arch, spec));
  TANDEM_ASSIGN_OR_RETURN(const double eps,
                          file.Number(arch + ".attention.layer_norm_rms_epsilon"));
  spec.rms_norm_eps = static_cast<float>(eps);
  if (const std::string key = arch + ".rope.freq_base"; file.HasKey(key)) {
    TANDEM_ASSIGN_OR_RETURN(spec.rope_theta, file.Number(key));
  }
  const GgufTensor* embedding = file.Find("token_embd.weight");
  if (embedding == nullptr) {
    return InvalidArgument("{} has no tensor token_embd.weight: is it a whole model?", file.path());
  }
  spec.vocab_size = embedding->shape[0];
  spec.tie_word_embeddings = file.Find("output.weight") == nullptr;
  return spec;
}

}  // namespace tandem
