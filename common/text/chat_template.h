// Renders conversations as the text on which a model was trained.
#pragma once

#include <optional>
#include <string>

#include <absl/status/statusor.h>
#include <absl/time/time.h>
#include <nlohmann/json.hpp>

#include "common/text/jinja/template.h"

namespace tandem {

struct ChatInputs {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  nlohmann::ordered_json tools;      // null: none
  nlohmann::ordered_json documents;  // null: none
  bool add_generation_prompt = false;
  std::optional<std::string> bos_token, eos_token;  // absent: undefined in the template
  // More variables (enable_thinking, ...), which override those above. An object or null.
  nlohmann::ordered_json kwargs;
  absl::Time now;  // of strftime_now
  absl::TimeZone zone = absl::UTCTimeZone();
};

// Thread-safe.
class ChatTemplate {
 public:
  // InvalidArgument with line and reason: a syntax error or an unsupported tag.
  static absl::StatusOr<ChatTemplate> Parse(const std::string& source);

  // Exactly what jinja2 renders in transformers' apply_chat_template. InvalidArgument: the template
  // refuses the conversation (its own reason is in the message) or fails on it.
  absl::StatusOr<std::string> Render(const ChatInputs& inputs) const;

 private:
  explicit ChatTemplate(jinja::Template parsed) : template_(std::move(parsed)) {}
  jinja::Template template_;
};

}  // namespace tandem
