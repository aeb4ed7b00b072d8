#include "common/formats/gguf/gguf_import.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/formats/atomic_file.h"
#include "common/formats/gguf/gguf_tokenizer.h"
#include "common/formats/safetensors_writer.h"
#include "common/types/element_convert.h"

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
  // Only the llama architecture interleaves the halves of each head.
  if (spec.model_type == "llama" && stem == "self_attn.q_proj") {
    source.permuted_heads = spec.num_heads;
  } else if (spec.model_type == "llama" && stem == "self_attn.k_proj") {
    source.permuted_heads = spec.num_kv_heads;
  }
  return source;
}

// [heads, head_dim / 2, 2, in] to [heads, 2, head_dim / 2, in]: pairs next to each other become
// pairs half a head apart.
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

// A tensor we do not know would change what the model computes.
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

}  // namespace tandem
