#include "common/formats/gguf/gguf_import.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/formats/files.h"
#include "common/formats/gguf/gguf_tokenizer.h"
#include "common/formats/safetensors.h"
#include "common/model_spec/model_family.h"
#include "common/types/tensor_view.h"

namespace tandem {
namespace {

// HF name after "model.layers.N." to GGUF name after "blk.N.".
constexpr std::pair<const char*, const char*> kLayerNames[] = {
    {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
    {"self_attn.q_norm", "attn_q_norm"}, {"self_attn.k_norm", "attn_k_norm"},
    {"self_attn.o_proj", "attn_output"}, {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"}};

// Where a tensor is in the GGUF file, and whether its rows are in llama.cpp's rotary order.
struct Source {
  std::string name;
  int64_t permuted_heads = 0;  // 0: rows are in order
};

Source SourceOf(const ModelSpec& spec, const TensorSpec& tensor) {
  if (tensor.name == "model.embed_tokens.weight") return {"token_embd.weight"};
  if (tensor.name == "model.norm.weight") return {"output_norm.weight"};
  if (tensor.name == "lm_head.weight") return {"output.weight"};
  const std::string prefix = fmt::format("model.layers.{}.", tensor.layer);
  const size_t dot = tensor.name.rfind('.');
  const std::string stem = tensor.name.substr(prefix.size(), dot - prefix.size());
  const std::string kind = tensor.name.substr(dot);  // .weight or .bias
  Source source;
  for (const auto& [hf, gguf] : kLayerNames) {
    if (stem == hf) source.name = fmt::format("blk.{}.{}{}", tensor.layer, gguf, kind);
  }
  const ModelFamily* family = FindModelFamily(spec.model_type);
  if (family == nullptr || !family->gguf_interleaves_heads) return source;
  if (stem == "self_attn.q_proj") source.permuted_heads = spec.num_heads;
  if (stem == "self_attn.k_proj") source.permuted_heads = spec.num_kv_heads;
  return source;
}

// Reorders [heads, head_dim / 2, 2, in] to [heads, 2, head_dim / 2, in]: adjacent pairs become
// pairs that are half a head apart.
std::vector<float> UndoRotaryPermutation(const std::vector<float>& values,
                                         int64_t heads,
                                         int64_t rows,
                                         int64_t columns) {
  std::vector<float> result(values.size());
  const int64_t head_dim = rows / heads;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t head = row / head_dim;
    const int64_t pair = row % head_dim / 2;
    const int64_t half = row % 2;
    const int64_t target = head * head_dim + half * (head_dim / 2) + pair;
    std::copy_n(values.begin() + row * columns, columns, result.begin() + target * columns);
  }
  return result;
}

absl::Status CopyTensor(const GgufFile& file,
                        const ModelSpec& spec,
                        const TensorSpec& tensor,
                        SafetensorsWriter& writer) {
  const Source source = SourceOf(spec, tensor);
  const GgufTensor* found = file.Find(source.name);
  if (found == nullptr) {
    return InvalidArgument("{} has no tensor {} (wanted for {})", file.path(), source.name,
                           tensor.name);
  }
  if (found->shape != tensor.shape) {
    return InvalidArgument("{}: tensor {} has shape {}, expected {}", file.path(), source.name,
                           ShapeText(found->shape), ShapeText(tensor.shape));
  }
  TANDEM_ASSIGN_OR_RETURN(std::vector<float> values, file.Dequantize(*found));
  if (source.permuted_heads > 0) {
    const int64_t rows = tensor.shape[0];
    const int64_t columns = static_cast<int64_t>(values.size()) / rows;
    values = UndoRotaryPermutation(values, source.permuted_heads, rows, columns);
  }
  std::vector<Bf16> rounded(values.size());
  TANDEM_RETURN_IF_ERROR(ConvertElements(values.data(), DType::kFloat32, rounded.data(),
                                         DType::kBFloat16, values.size()));
  return writer.Write(tensor.name, rounded.data(), rounded.size() * sizeof(Bf16));
}

// An unknown tensor would change what the model computes.
absl::Status RefuseUnknownTensors(const GgufFile& file,
                                  const ModelSpec& spec,
                                  const std::vector<TensorSpec>& tensors) {
  std::set<std::string> known;
  for (const TensorSpec& tensor : tensors) known.insert(SourceOf(spec, tensor).name);
  for (const GgufTensor& tensor : file.tensors()) {
    if (known.count(tensor.name) > 0) continue;
    return MakeStatus(absl::StatusCode::kUnimplemented,
                      "{}: tensor {} {} has no place in a {} model; use another model", file.path(),
                      tensor.name, ShapeText(tensor.shape), spec.model_type);
  }
  return absl::OkStatus();
}

absl::Status CopyTensors(const GgufFile& file, const ModelSpec& spec, const std::string& path) {
  const std::vector<TensorSpec> tensors = HfTensors(spec);
  TANDEM_RETURN_IF_ERROR(RefuseUnknownTensors(file, spec, tensors));
  std::vector<TensorDeclaration> declarations;
  for (const TensorSpec& tensor : tensors) {
    declarations.push_back({tensor.name, DType::kBFloat16, tensor.shape});
  }
  TANDEM_ASSIGN_OR_RETURN(const auto writer,
                          SafetensorsWriter::Create(path, declarations, {{"format", "pt"}}));
  for (const TensorSpec& tensor : tensors) {
    TANDEM_RETURN_IF_ERROR(CopyTensor(file, spec, tensor, *writer));
  }
  return writer->Finish();
}

}  // namespace

absl::Status ImportGguf(const std::string& gguf_path, const std::string& out_dir) {
  TANDEM_ASSIGN_OR_RETURN(const auto file, GgufFile::Open(gguf_path));
  TANDEM_ASSIGN_OR_RETURN(ModelSpec spec, GgufModelSpec(*file));
  TANDEM_ASSIGN_OR_RETURN(const GgufTokenizer tokenizer, ConvertGgufTokenizer(*file));
  spec.eos_token_ids = tokenizer.eos_token_ids;
  spec.bos_token_id = tokenizer.bos_token_id;
  spec.pad_token_id = tokenizer.pad_token_id;
  TANDEM_ASSIGN_OR_RETURN(const auto directory, AtomicDirectory::Create(out_dir));
  const std::string dir = directory->partial_path();
  TANDEM_RETURN_IF_ERROR(CopyTensors(*file, spec, dir + "/model.safetensors"));
  const std::pair<const char*, const std::string> texts[] = {
      {"config.json", ModelConfigJson(spec)},
      {"generation_config.json", GenerationConfigJson(spec)},
      {"tokenizer.json", tokenizer.tokenizer_json},
      {"tokenizer_config.json", tokenizer.tokenizer_config_json}};
  for (const auto& [name, text] : texts) {
    TANDEM_RETURN_IF_ERROR(WriteFileAtomically(dir + "/" + name, text));
  }
  return directory->Commit();
}

// The model's sizes from GGUF metadata.

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
  // Scaled frequencies without the parameters of the scaling.
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
  const ModelFamily* family = FindModelFamily(arch);
  if (family == nullptr) {
    return MakeStatus(absl::StatusCode::kUnimplemented,
                      "{}: architecture {} is not supported; use a {} model", file.path(), arch,
                      ModelFamilyNames());
  }
  TANDEM_RETURN_IF_ERROR(RefuseUnsupported(file, arch));
  spec.model_type = arch;
  spec.qkv_bias = family->qkv_bias;
  spec.qk_norm = family->qk_norm;
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
