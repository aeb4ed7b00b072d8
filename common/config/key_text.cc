#include "common/config/key_text.h"

#include <fmt/format.h>

#include "common/config/schema.h"

namespace tandem {

std::string RangeText(const KeySpec& spec) {
  const v1::KeyInfo& info = spec.info;
  if (info.has_pattern()) return "must match " + info.pattern();
  if (info.has_min() && info.has_max()) return fmt::format("{} to {}", info.min(), info.max());
  std::string text;
  if (info.has_min()) text = fmt::format("at least {}", info.min());
  if (info.has_above()) text = fmt::format("above {}", info.above());
  if (info.has_max()) text += fmt::format("{}at most {}", text.empty() ? "" : ", ", info.max());
  return text;
}

std::vector<std::string> AllAliases(const KeySpec& spec) {
  std::vector<std::string> all(spec.info.aliases().begin(), spec.info.aliases().end());
  for (const KeySpec& above : ConfigSchema()) {
    if (!above.section || spec.key.rfind(above.key + ".", 0) != 0) continue;
    for (const std::string& alias : above.info.aliases()) {
      all.push_back(alias + spec.key.substr(above.key.size()));
    }
  }
  return all;
}

}  // namespace tandem
