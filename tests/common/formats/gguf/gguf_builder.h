// GGUF files made in memory, whole or broken on purpose.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::testing {

class GgufBuilder {
 public:
  GgufBuilder& Integer(const std::string& key, uint32_t value);
  GgufBuilder& Number(const std::string& key, float value);
  GgufBuilder& Flag(const std::string& key, bool value);
  GgufBuilder& Text(const std::string& key, const std::string& value);
  GgufBuilder& Texts(const std::string& key, const std::vector<std::string>& values);
  GgufBuilder& Integers(const std::string& key, const std::vector<int32_t>& values);
  // `shape` outermost first, as everywhere in Tandem; `type` is a ggml_type.
  GgufBuilder& Tensor(const std::string& name,
                      const std::vector<int64_t>& shape,
                      uint32_t type,
                      const std::string& data);
  GgufBuilder& Floats(const std::string& name,
                      const std::vector<int64_t>& shape,
                      const std::vector<float>& values);
  void set_version(uint32_t version) { version_ = version; }
  std::string Build() const;

 private:
  void Key(const std::string& key, uint32_t type);
  uint32_t version_ = 3;
  uint64_t keys_ = 0;
  uint64_t tensors_ = 0;
  std::string metadata_;
  std::string infos_;
  std::string data_;
};

// A llama of one layer with F32 weights (element i of a tensor is i) and a smollm tokenizer of
// eight tokens: <|end|>, "a", "b", "c", "ab", <user>, "1", and one unused.
GgufBuilder SmallLlama();

}  // namespace tandem::testing
