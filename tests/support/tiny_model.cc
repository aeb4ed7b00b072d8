#include "tests/support/tiny_model.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/philox.h"
#include "common/base/status.h"
#include "common/formats/safetensors.h"

namespace tandem::testing {
namespace {

using nlohmann::json;

const std::vector<std::pair<std::string, std::string>>& Merges() {
  static const auto* merges = new std::vector<std::pair<std::string, std::string>>{
      {"t", "h"}, {"th", "e"}, {"i", "n"}, {"e", "r"}, {"1", "0"}, {"Ġ", "+"}, {"Ġ", "="}};
  return *merges;
}

std::string Utf8(uint32_t code) {
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

// The usual byte-level alphabet: printable Latin-1 stands for itself, the rest for U+0100 and up.
std::vector<std::string> ByteAlphabet() {
  std::vector<std::string> alphabet;
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
                           (byte >= 0xAE && byte <= 0xFF);
    alphabet.push_back(Utf8(printable ? byte : next++));
  }
  return alphabet;
}

const std::vector<std::string>& SpecialTokens() {
  static const auto* tokens =
      new std::vector<std::string>{"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  return *tokens;
}

int64_t FirstSpecialId() { return 256 + static_cast<int64_t>(Merges().size()); }

json TokenizerJson() {
  json vocab = json::object();
  int64_t next = 0;
  for (const std::string& symbol : ByteAlphabet()) vocab[symbol] = next++;
  json merges = json::array();
  for (const auto& [left, right] : Merges()) {
    vocab[left + right] = next++;
    merges.push_back(left + " " + right);
  }
  json added = json::array();
  for (const std::string& token : SpecialTokens()) {
    added.push_back({{"id", next++},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"vocab", vocab},
            {"merges", merges}}}};
}

json TokenizerConfigJson() {
  return {{"tokenizer_class", "GPT2Tokenizer"},
          {"bos_token", "<|im_start|>"},
          {"eos_token", "<|im_end|>"},
          {"pad_token", "<|endoftext|>"},
          {"chat_template",
           "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "
           "message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
           "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"}};
}

// A normal variate by Box and Muller, a pure function of (seed, tensor, element).
float Normal(uint64_t seed, uint64_t tensor, uint64_t element) {
  const auto words = RandomWords(seed, tensor, element);
  const double u = (words[0] + 0.5) * 0x1p-32, v = (words[1] + 0.5) * 0x1p-32;
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v));
}

// Chosen so that logits spread over a few units: neither flat nor one-hot.
void MeanAndScale(const TensorSpec& tensor, float* mean, float* scale) {
  *mean = 0.0f;
  if (tensor.name.find("norm") != std::string::npos) {
    *mean = 1.0f;
    *scale = 0.1f;
  } else if (tensor.shape.size() == 1) {
    *scale = 0.2f;
  } else if (tensor.layer < 0) {
    *scale = 0.3f;
  } else {
    *scale = 1.0f / std::sqrt(static_cast<float>(tensor.shape[1]));
  }
}

absl::Status WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) return Internal("cannot write {}", path);
  return absl::OkStatus();
}

absl::Status WriteWeights(const std::string& path,
                          const ModelSpec& spec,
                          const TinyModelOptions& options) {
  const std::vector<TensorSpec> tensors = HfTensors(spec);
  const DType dtype = options.float32 ? DType::kFloat32 : DType::kBFloat16;
  std::vector<TensorDeclaration> declarations;
  for (const TensorSpec& tensor : tensors) {
    declarations.push_back({tensor.name, dtype, tensor.shape});
  }
  TANDEM_ASSIGN_OR_RETURN(auto writer, SafetensorsWriter::Create(path, declarations));
  for (size_t t = 0; t < tensors.size(); ++t) {
    float mean = 0.0f, scale = 1.0f;
    MeanAndScale(tensors[t], &mean, &scale);
    const int64_t elements = NumElements(tensors[t].shape);
    std::vector<float> values(static_cast<size_t>(elements));
    std::vector<Bf16> rounded(static_cast<size_t>(elements));
    for (int64_t i = 0; i < elements; ++i) {
      rounded[i] = ToBf16(mean + scale * Normal(options.seed, t, static_cast<uint64_t>(i)));
      values[i] = FromBf16(rounded[i]);
    }
    const void* data = options.float32 ? static_cast<const void*>(values.data()) : rounded.data();
    TANDEM_RETURN_IF_ERROR(
        writer->Write(tensors[t].name, data, static_cast<uint64_t>(elements) * DTypeBytes(dtype)));
  }
  return writer->Finish();
}

}  // namespace

int64_t TinyTokenizerSize() {
  return FirstSpecialId() + static_cast<int64_t>(SpecialTokens().size());
}
int32_t TinyPadTokenId() { return static_cast<int32_t>(FirstSpecialId()); }
int32_t TinyEosTokenId() { return static_cast<int32_t>(FirstSpecialId() + 2); }

ModelSpec TinyModelSpec(const TinyModelOptions& options) {
  ModelSpec spec;
  spec.model_type = options.model_type;
  spec.vocab_size = options.vocab_size;
  spec.hidden_size = options.hidden_size;
  spec.num_layers = options.num_layers;
  spec.num_heads = options.num_heads;
  spec.num_kv_heads = options.num_kv_heads;
  spec.head_dim = options.head_dim;
  spec.intermediate_size = options.intermediate_size;
  spec.max_position = options.max_position;
  spec.rms_norm_eps = 1e-5f;
  spec.tie_word_embeddings = options.tie_word_embeddings;
  spec.qkv_bias = options.model_type == "qwen2";
  spec.qk_norm = options.model_type == "qwen3";
  spec.eos_token_ids = {TinyEosTokenId()};
  spec.bos_token_id = TinyPadTokenId() + 1;
  spec.pad_token_id = TinyPadTokenId();
  return spec;
}

absl::Status WriteTinyModel(const std::string& directory, const TinyModelOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return Internal("cannot make {}: {}", directory, error.message());
  const ModelSpec spec = TinyModelSpec(options);
  const std::string dtype = options.float32 ? "float32" : "bfloat16";
  TANDEM_RETURN_IF_ERROR(WriteText(directory + "/config.json", ModelConfigJson(spec, dtype)));
  TANDEM_RETURN_IF_ERROR(
      WriteText(directory + "/generation_config.json", GenerationConfigJson(spec)));
  TANDEM_RETURN_IF_ERROR(WriteText(directory + "/tokenizer.json", TokenizerJson().dump(1)));
  TANDEM_RETURN_IF_ERROR(
      WriteText(directory + "/tokenizer_config.json", TokenizerConfigJson().dump(1)));
  return WriteWeights(directory + "/model.safetensors", spec, options);
}

}  // namespace tandem::testing
