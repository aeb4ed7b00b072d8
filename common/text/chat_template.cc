#include "common/text/chat_template.h"

#include "common/base/status.h"

namespace tandem {
namespace {

absl::StatusOr<jinja::Mapping> Variables(const ChatInputs& inputs) {
  nlohmann::ordered_json json = {{"messages", inputs.messages},
                                 {"tools", inputs.tools},
                                 {"documents", inputs.documents},
                                 {"add_generation_prompt", inputs.add_generation_prompt}};
  if (inputs.bos_token) json["bos_token"] = *inputs.bos_token;
  if (inputs.eos_token) json["eos_token"] = *inputs.eos_token;
  if (!inputs.kwargs.is_null() && !inputs.kwargs.is_object()) {
    return InvalidArgument("chat template variables must be a JSON object, not {}",
                           inputs.kwargs.type_name());
  }
  for (const auto& [name, value] : inputs.kwargs.items()) json[name] = value;
  TANDEM_ASSIGN_OR_RETURN(const jinja::Value value, jinja::Value::FromJson(json));
  return value.mapping();
}

}  // namespace

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(const std::string& source) {
  absl::StatusOr<jinja::Template> parsed = jinja::Template::Parse(source);
  if (!parsed.ok()) return Annotate(parsed.status(), "chat template does not parse");
  return ChatTemplate(*std::move(parsed));
}

absl::StatusOr<std::string> ChatTemplate::Render(const ChatInputs& inputs) const {
  TANDEM_ASSIGN_OR_RETURN(const jinja::Mapping variables, Variables(inputs));
  absl::StatusOr<std::string> text = template_.Render(variables, inputs.now, inputs.zone);
  if (!text.ok()) return Annotate(text.status(), "chat template cannot render the conversation");
  return text;
}

}  // namespace tandem
