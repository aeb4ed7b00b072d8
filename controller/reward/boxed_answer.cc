#include "controller/reward/boxed_answer.h"

#include <cstdint>

namespace tandem {

std::optional<size_t> BalancedEnd(std::string_view text, size_t from) {
  int64_t open = 0;
  for (size_t i = from; i < text.size(); ++i) {
    if (text[i] == '{') ++open;
    // Only a closing brace ends the box: "}{" goes through zero on the way.
    if (text[i] == '}' && --open == 0) return i + 1;
  }
  return std::nullopt;
}

std::optional<std::string> LastBoxed(std::string_view text) {
  constexpr std::string_view kOpen = "\\boxed{";
  const size_t at = text.rfind(kOpen);
  if (at == std::string_view::npos) return std::nullopt;
  const std::optional<size_t> end = BalancedEnd(text, at);
  if (!end) return std::nullopt;
  const size_t inside = at + kOpen.size();
  return std::string(text.substr(inside, *end - 1 - inside));
}

}  // namespace tandem
