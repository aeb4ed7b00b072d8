#include "controller/data/chat_codec.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "common/text/chat_template.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

Json Message(const std::string& role, const std::string& content) {
  return Json{{"role", role}, {"content", content}};
}

}  // namespace

ChatCodec::ChatCodec(const Tokenizer* tokenizer,
                     std::unique_ptr<const ChatTemplate> chat_template,
                     ChatCodecOptions options)
    : tokenizer_(tokenizer), template_(std::move(chat_template)), options_(std::move(options)) {}
ChatCodec::~ChatCodec() = default;

absl::StatusOr<std::unique_ptr<ChatCodec>> ChatCodec::Create(const Tokenizer* tokenizer,
                                                             ChatCodecOptions options) {
  std::unique_ptr<const ChatTemplate> parsed;
  if (tokenizer->chat_template().has_value()) {
    absl::StatusOr<ChatTemplate> result = ChatTemplate::Parse(*tokenizer->chat_template());
    if (!result.ok()) return Annotate(result.status(), tokenizer->chat_template_file());
    parsed = std::make_unique<const ChatTemplate>(*std::move(result));
  }
  return std::unique_ptr<ChatCodec>(
      new ChatCodec(tokenizer, std::move(parsed), std::move(options)));
}

std::string ChatCodec::Decode(const std::vector<int32_t>& tokens) const {
  return tokenizer_->Decode(tokens, /*skip_special_tokens=*/true);
}

absl::StatusOr<std::vector<int32_t>> ChatCodec::EncodeRaw(const std::string& text) const {
  return tokenizer_->Encode(text, /*add_special_tokens=*/true);
}

absl::StatusOr<std::vector<int32_t>> ChatCodec::EncodeRendered(const std::string& rendered) const {
  return tokenizer_->Encode(rendered, /*add_special_tokens=*/false);
}

absl::StatusOr<std::vector<int32_t>> ChatCodec::EncodeChat(const std::string& text) const {
  TANDEM_ASSIGN_OR_RETURN(const std::string rendered,
                          RenderChat(Json::array({Message("user", text)})));
  return EncodeRendered(rendered);
}

absl::StatusOr<std::string> ChatCodec::Render(const Json& messages,
                                              bool add_generation_prompt) const {
  if (template_ == nullptr) {
    return InvalidArgument(
        "the model's tokenizer has no chat template: give prompts as text instead of messages, or "
        "add a chat_template to tokenizer_config.json");
  }
  ChatInputs inputs;
  inputs.messages = messages;
  inputs.add_generation_prompt = add_generation_prompt;
  inputs.bos_token = tokenizer_->bos_token();
  inputs.eos_token = tokenizer_->eos_token();
  if (!options_.template_kwargs.empty()) {
    inputs.kwargs = Json::parse(options_.template_kwargs, nullptr, /*allow_exceptions=*/false);
  }
  inputs.now = options_.now;
  return template_->Render(inputs);
}

absl::StatusOr<std::string> ChatCodec::RenderChat(const Json& messages) const {
  const bool own_system = !messages.empty() && messages[0].at("role") == "system";
  if (options_.add_default_system_prompt || own_system) return Render(messages, true);

  const Json empty_system = Message("system", "");
  Json with_system = Json::array({empty_system});
  for (const Json& message : messages) with_system.push_back(message);
  TANDEM_ASSIGN_OR_RETURN(std::string whole, Render(with_system, true));
  TANDEM_ASSIGN_OR_RETURN(const std::string system, Render(Json::array({empty_system}), false));
  if (!whole.starts_with(system)) {
    return InvalidArgument(
        "data.add_default_system_prompt is false, but this chat template does not write the system "
        "message as a part of its own: set it to true, or give the system message in the data");
  }
  std::string rest = whole.substr(system.size());
  const std::string bos = tokenizer_->bos_token().value_or("");
  // A template that writes BOS first has written it into the removed prefix, so BOS is added again.
  // A BOS that is only the start of the system message's own markup (ChatML) is removed with it.
  const bool bos_stands_alone = !bos.empty() && system.starts_with(bos) && !rest.starts_with(bos);
  return bos_stands_alone ? bos + rest : rest;
}

}  // namespace tandem
