// Conversations to prompt tokens and responses to text, as the run's config says.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/time/time.h>
#include <nlohmann/json_fwd.hpp>

#include "common/text/tokenizer.h"
#include "controller/data/prompt.h"

namespace tandem {

class ChatTemplate;

struct ChatCodecOptions {
  std::string template_kwargs;  // data.apply_chat_template_kwargs, a JSON object; empty: none
  bool add_default_system_prompt = true;
  absl::Time now;  // what strftime_now sees: one moment for the whole run
};

// Immutable; thread-safe.
class ChatCodec final : public PromptCodec {
 public:
  // `tokenizer` must outlive the codec. InvalidArgument: the chat template does not parse. A
  // tokenizer without chat template serves raw texts only.
  static absl::StatusOr<std::unique_ptr<ChatCodec>> Create(const Tokenizer* tokenizer,
                                                           ChatCodecOptions options);

  ~ChatCodec() override;

  std::string Decode(const std::vector<int32_t>& tokens) const override;
  absl::StatusOr<std::vector<int32_t>> EncodeChat(const std::string& text) const override;
  absl::StatusOr<std::vector<int32_t>> EncodeRaw(const std::string& text) const override;

  // The text a model is prompted with, ending where the assistant speaks. Without the default
  // system prompt, a conversation that has no system message of its own is rendered after an empty
  // system message, and what the template makes of that message alone is taken off the front, so
  // that the rest is exactly what the template writes. InvalidArgument: the template refuses the
  // conversation, or its text with a system message does not begin with the system message's own.
  absl::StatusOr<std::string> RenderChat(const nlohmann::ordered_json& messages) const;
  // Tokens of a rendered conversation: special tokens are in its text already.
  absl::StatusOr<std::vector<int32_t>> EncodeRendered(const std::string& rendered) const;

 private:
  ChatCodec(const Tokenizer* tokenizer,
            std::unique_ptr<const ChatTemplate> chat_template,
            ChatCodecOptions options);
  absl::StatusOr<std::string> Render(const nlohmann::ordered_json& messages,
                                     bool add_generation_prompt) const;

  const Tokenizer* tokenizer_;
  std::unique_ptr<const ChatTemplate> template_;  // null: the tokenizer has none
  ChatCodecOptions options_;
};

}  // namespace tandem
