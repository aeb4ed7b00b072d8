// Texts about verl's keys, for `tandemctl config explain` and docs/reference/verl.md.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/config/config.h"
#include "common/config/describe.h"
#include "common/config/schema.h"
#include "common/config/verl/known_keys.h"
#include "common/config/verl/verl_rules.h"

namespace tandem {
namespace {

// What is done with a key, in two texts.
struct Treatment {
  enum Kind { kMapped, kNoEffect, kSomeValues, kRefused, kUnknown } kind = kUnknown;
  std::string here;
  std::string why;
};

// "`1` or `2`"
std::string Choices(std::string_view accepts) {
  std::string text;
  while (!accepts.empty()) {
    const size_t bar = std::min(accepts.find('|'), accepts.size());
    text += fmt::format("{}`{}`", text.empty() ? "" : ", ", accepts.substr(0, bar));
    accepts.remove_prefix(std::min(bar + 1, accepts.size()));
  }
  return text;
}

Treatment OfRule(const VerlRule& rule) {
  if (rule.accepts == "*") return {Treatment::kNoEffect, "no effect", std::string(rule.reason)};
  if (rule.accepts.empty()) {
    return {Treatment::kRefused, "refused unless null",
            fmt::format("{}; {}", rule.reason, rule.remedy)};
  }
  return {Treatment::kSomeValues,
          fmt::format("no effect as {}, else refused", Choices(rule.accepts)),
          fmt::format("{}; otherwise: {}", rule.reason, rule.remedy)};
}

// The key of the schema whose JSON object `key` is an entry of, or nullptr.
const KeySpec* JsonKeyAbove(const std::string& key) {
  const size_t dot = key.rfind('.');
  if (dot == std::string::npos) return nullptr;
  const KeySpec* spec = FindKey(key.substr(0, dot));
  return spec != nullptr && spec->info.json() ? spec : nullptr;
}

Treatment OfKey(const std::string& verls) {
  const std::string key = CanonicalKey(verls);
  const KeySpec* spec = FindKey(key);
  if (spec == nullptr) spec = JsonKeyAbove(key);
  if (spec != nullptr) {
    std::string why = spec->info.verl();
    if (!spec->section && why.find("default") == std::string::npos && !spec->info.required()) {
      why += fmt::format("{}default here {}", why.empty() ? "" : "; ", DefaultText(*spec));
    }
    return {Treatment::kMapped, fmt::format("`{}`", spec->key), why};
  }
  const VerlRule* rule = FindVerlRule(key);
  return rule == nullptr ? Treatment{} : OfRule(*rule);
}

// verl's default as YAML writes it, without the interpolations of a whole line.
std::string DefaultCell(const VerlKey& known) {
  if (known.default_value == nullptr) return "not in verl's YAML";
  std::string_view text = known.default_value;
  if (text.find("${") != std::string_view::npos) return "another key's";
  if (text.size() >= 2 && text.front() == '"') text = text.substr(1, text.size() - 2);
  return text.empty() ? "" : fmt::format("`{}`", text);
}

constexpr char kVerlHead[] = R"(# verl's keys

Generated from `common/config/verl` and `proto/tandem/v1/config*.proto` by
`build/bin/tandem-config-docs --verl > docs/reference/verl.md`; a test keeps the two equal. `tandemctl config explain KEY` prints one
entry, and [verl_scripts.md](../guides/verl_scripts.md) says how a script of verl's is started.

All keys of `ppo_trainer.yaml` and of the scripts in `examples/grpo_trainer`, of verl {}:
{} keys, of which {} are Tandem's own under verl's name, {} have no effect here whatever they say, {} are accepted with some values, {} are refused unless
they are null, and {} are unknown. Defaults are those of the first version that has the key.

- **A key of Tandem's**: the column *here* names it.
- **no effect**: accepted, and listed once at the start. The key asks for what is done anyway, or only tunes an engine that Tandem does
  not have.
- **no effect as ..., else refused**: other values would change the result and cannot be honoured.
- **refused unless null**: the same for a key that asks for nothing only where it is null.

Sections that hold another engine's settings (`actor_rollout_ref.actor.megatron`, `veomni`, `torchtitan`, `engine`) are refused as a whole,
in one line. Values of Tandem's keys that only verl has:

| key | value | here | why |
|---|---|---|---|
)";

}  // namespace

std::string MarkdownCell(std::string text) {
  for (size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) {
    text.replace(at, 1, "\\|");
  }
  return text;
}

std::string ExplainVerlKey(const std::string& key) {
  const Treatment treatment = OfKey(key);
  if (treatment.kind == Treatment::kUnknown) return "";
  std::string out = key + "\n";
  const auto row = [&out](std::string_view name, const std::string& value) {
    if (!value.empty()) out += fmt::format("  {:<10}{}\n", name, value);
  };
  const VerlKey* known = FindVerlKey(key);
  if (known == nullptr) known = FindVerlKey("actor_rollout_ref." + key);
  row("of", "verl");
  if (known != nullptr) row("default", DefaultCell(*known));
  row("here", treatment.here);
  row("why", treatment.why);
  return out;
}

std::string VerlMarkdown() {
  std::string rows;
  std::array<int, 5> counts = {};
  for (const VerlKey& known : KnownVerlKeys()) {
    const Treatment treatment = OfKey(std::string(known.key));
    ++counts[treatment.kind];
    rows += fmt::format("| `{}` | {} | {} | {} |\n", known.key, MarkdownCell(DefaultCell(known)),
                        treatment.kind == Treatment::kUnknown ? "unknown" : treatment.here,
                        MarkdownCell(treatment.why));
  }
  std::string values;
  for (const VerlValue& value : VerlValues()) {
    values += fmt::format("| `{}` | `{}` | {} | {} |\n", value.key, value.value,
                          value.instead.empty() ? "no effect" : fmt::format("`{}`", value.instead),
                          value.reason);
  }
  return fmt::format(kVerlHead, KnownVerlVersions(), KnownVerlKeys().size(),
                     counts[Treatment::kMapped], counts[Treatment::kNoEffect],
                     counts[Treatment::kSomeValues], counts[Treatment::kRefused],
                     counts[Treatment::kUnknown]) +
         values + "\n| key | verl's default | here | why |\n|---|---|---|---|\n" + rows;
}

}  // namespace tandem
