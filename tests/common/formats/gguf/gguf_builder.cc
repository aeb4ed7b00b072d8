#include "tests/common/formats/gguf/gguf_builder.h"

#include <numeric>

namespace tandem::testing {
namespace {

template <typename T>
std::string Bytes(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(T));
}

std::string Counted(const std::string& text) { return Bytes<uint64_t>(text.size()) + text; }

constexpr size_t kAlignment = 32;

std::string PaddedBytes(std::string bytes) {
  bytes.resize((bytes.size() + kAlignment - 1) / kAlignment * kAlignment, '\0');
  return bytes;
}

}  // namespace

void GgufBuilder::Key(const std::string& key, uint32_t type) {
  metadata_ += Counted(key) + Bytes(type);
  ++keys_;
}

GgufBuilder& GgufBuilder::Integer(const std::string& key, uint32_t value) {
  Key(key, 4);
  metadata_ += Bytes(value);
  return *this;
}

GgufBuilder& GgufBuilder::Number(const std::string& key, float value) {
  Key(key, 6);
  metadata_ += Bytes(value);
  return *this;
}

GgufBuilder& GgufBuilder::Flag(const std::string& key, bool value) {
  Key(key, 7);
  metadata_ += Bytes<uint8_t>(value ? 1 : 0);
  return *this;
}

GgufBuilder& GgufBuilder::Text(const std::string& key, const std::string& value) {
  Key(key, 8);
  metadata_ += Counted(value);
  return *this;
}

GgufBuilder& GgufBuilder::Texts(const std::string& key, const std::vector<std::string>& values) {
  Key(key, 9);
  metadata_ += Bytes<uint32_t>(8) + Bytes<uint64_t>(values.size());
  for (const std::string& value : values) metadata_ += Counted(value);
  return *this;
}

GgufBuilder& GgufBuilder::Integers(const std::string& key, const std::vector<int32_t>& values) {
  Key(key, 9);
  metadata_ += Bytes<uint32_t>(5) + Bytes<uint64_t>(values.size());
  for (const int32_t value : values) metadata_ += Bytes(value);
  return *this;
}

GgufBuilder& GgufBuilder::Tensor(const std::string& name,
                                 const std::vector<int64_t>& shape,
                                 uint32_t type,
                                 const std::string& data) {
  infos_ += Counted(name) + Bytes<uint32_t>(static_cast<uint32_t>(shape.size()));
  for (size_t i = shape.size(); i > 0; --i) infos_ += Bytes<int64_t>(shape[i - 1]);
  infos_ += Bytes(type) + Bytes<uint64_t>(data_.size());
  data_ += PaddedBytes(data);
  ++tensors_;
  return *this;
}

GgufBuilder& GgufBuilder::Floats(const std::string& name,
                                 const std::vector<int64_t>& shape,
                                 const std::vector<float>& values) {
  return Tensor(
      name, shape, 0,
      std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
}

std::string GgufBuilder::Build() const {
  return PaddedBytes("GGUF" + Bytes(version_) + Bytes(tensors_) + Bytes(keys_) + metadata_ +
                     infos_) +
         data_;
}

GgufBuilder SmallLlama() {
  GgufBuilder gguf;
  gguf.Text("general.architecture", "llama")
      .Integer("llama.block_count", 1)
      .Integer("llama.context_length", 64)
      .Integer("llama.embedding_length", 8)
      .Integer("llama.feed_forward_length", 6)
      .Integer("llama.attention.head_count", 2)
      .Integer("llama.attention.head_count_kv", 1)
      .Number("llama.rope.freq_base", 5000.0f)
      .Number("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .Text("tokenizer.ggml.model", "gpt2")
      .Text("tokenizer.ggml.pre", "smollm")
      .Texts("tokenizer.ggml.tokens", {"<|end|>", "a", "b", "c", "ab", "<user>", "1", "[PAD7]"})
      .Integers("tokenizer.ggml.token_type", {3, 1, 1, 1, 1, 4, 1, 5})
      .Texts("tokenizer.ggml.merges", {"a b"})
      .Integer("tokenizer.ggml.eos_token_id", 0)
      .Text("tokenizer.chat_template", "{{ messages }}");
  const std::pair<const char*, std::vector<int64_t>> tensors[] = {
      {"token_embd.weight", {8, 8}},   {"blk.0.attn_norm.weight", {8}},
      {"blk.0.attn_q.weight", {8, 8}}, {"blk.0.attn_k.weight", {4, 8}},
      {"blk.0.attn_v.weight", {4, 8}}, {"blk.0.attn_output.weight", {8, 8}},
      {"blk.0.ffn_norm.weight", {8}},  {"blk.0.ffn_gate.weight", {6, 8}},
      {"blk.0.ffn_up.weight", {6, 8}}, {"blk.0.ffn_down.weight", {8, 6}},
      {"output_norm.weight", {8}}};
  for (const auto& [name, shape] : tensors) {
    int64_t count = 1;
    for (const int64_t dim : shape) count *= dim;
    std::vector<float> values(static_cast<size_t>(count));
    std::iota(values.begin(), values.end(), 0.0f);
    gguf.Floats(name, shape, values);
  }
  return gguf;
}

}  // namespace tandem::testing
