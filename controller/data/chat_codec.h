// Converts conversations to prompt tokens and responses to text, as configured by the run.
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
  absl::Time now;  // the time that strftime_now returns, the same for the complete run
};

// Immutable; thread-safe.
class ChatCodec final : public PromptCodec {
 public:
  // `tokenizer` must outlive the codec. InvalidArgument: the chat template cannot be parsed. With a
  // tokenizer that has no chat template, only raw texts can be encoded.
  static absl::StatusOr<std::unique_ptr<ChatCodec>> Create(const Tokenizer* tokenizer,
                                                           ChatCodecOptions options);

  ~ChatCodec() override;

  std::string Decode(const std::vector<int32_t>& tokens) const override;
  absl::StatusOr<std::vector<int32_t>> EncodeChat(const std::string& text) const override;
  absl::StatusOr<std::vector<int32_t>> EncodeRaw(const std::string& text) const override;

  // The prompt text of a conversation, up to where the assistant's turn begins. Without the default
  // system prompt, a conversation that has no system message is rendered with an empty one, and the
  // text that the template writes for an empty system message alone is removed from the front, so
  // that the rest is exactly the template's text. InvalidArgument: the template refuses the
  // conversation, or the text with a system message does not begin with that message's own text.
  absl::StatusOr<std::string> RenderChat(const nlohmann::ordered_json& messages) const;
  // The tokens of a rendered conversation, whose text already contains its special tokens.
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
