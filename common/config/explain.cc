#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/status_macros.h"
#include "common/config/config.h"
#include "common/config/key_text.h"
#include "common/config/schema.h"

namespace tandem {
namespace {

void Row(const std::string& name, const std::string& value, std::string* out) {
  if (!value.empty()) *out += fmt::format("  {:<10}{}\n", name, value);
}

std::string ExplainKey(const KeySpec& spec) {
  std::string out = spec.key + "\n";
  Row("meaning", spec.info.doc(), &out);
  Row("type", TypeName(spec), &out);
  Row("default", spec.info.required() ? "none: required" : DefaultText(spec), &out);
  Row("unit", spec.info.unit(), &out);
  Row("range", RangeText(spec), &out);
  Row("choices", fmt::format("{}", fmt::join(spec.info.choices(), ", ")), &out);
  Row("also", fmt::format("{}", fmt::join(AllAliases(spec), ", ")), &out);
  Row("verl", spec.info.verl(), &out);
  return out;
}

std::string OneLine(const KeySpec& spec) {
  const std::string value = spec.info.required() ? "required" : DefaultText(spec);
  const std::string shown = spec.section ? "" : fmt::format("[{}] ", value);
  return fmt::format("  {:<36} {}{}\n", spec.key, shown, spec.info.doc());
}

std::string ExplainSection(const std::string& prefix) {
  std::string out;
  for (const KeySpec& spec : ConfigSchema()) {
    if (spec.key.rfind(prefix, 0) == 0 && spec.key.find('[') == std::string::npos) {
      out += OneLine(spec);
    }
  }
  return out;
}

}  // namespace

absl::StatusOr<std::string> ExplainConfig(const std::string& key) {
  if (key.empty()) {
    std::string out = "Sections (explain SECTION lists its keys, explain KEY tells all of one):\n";
    for (const KeySpec& spec : ConfigSchema()) {
      if (spec.key.find('.') == std::string::npos) out += OneLine(spec);
    }
    return out;
  }
  const KeySpec* spec = FindKey(CanonicalKey(key));
  if (spec == nullptr) {
    return InvalidArgument("{} is no config key; {}", key, Suggestion(key));
  }
  std::string out =
      spec->key == key ? "" : fmt::format("{} is verl's name for {}\n", key, spec->key);
  if (!spec->section) {
    out += ExplainKey(*spec);
    if (EntryType(*spec) == nullptr) return out;
    out += "  an entry:\n";
    for (const KeySpec& inner : ConfigSchema()) {
      if (inner.key.rfind(spec->key + "[].", 0) == 0) out += OneLine(inner);
    }
    return out;
  }
  return out + fmt::format("{}: {}\n", spec->key, spec->info.doc()) +
         ExplainSection(spec->key + ".");
}

}  // namespace tandem
