// Text in and out of the controller: the tokenizer and the chat template behind two calls.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace tandem {

// Thread-safe.
class TextCodec {
 public:
  virtual ~TextCodec() = default;

  // Response tokens as text, special tokens left out.
  virtual std::string Decode(const std::vector<int32_t>& tokens) const = 0;
  // `text` as one user message through the chat template, or as it is.
  virtual absl::StatusOr<std::vector<int32_t>> EncodeChat(const std::string& text) const = 0;
  virtual absl::StatusOr<std::vector<int32_t>> EncodeRaw(const std::string& text) const = 0;
};

}  // namespace tandem
