// Texts about keys, for `tandemctl config explain` and docs/reference/config.md.
#include "common/config/describe.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/status.h"
#include "common/config/config.h"
#include "common/config/schema.h"

namespace tandem {
namespace {

// "1 to 2", "at least 0", "above 0, at most 1"; "" without limits.
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

// The key's own aliases and those that follow from aliases of the sections above it.
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
    if (const std::string text = ExplainVerlKey(key); !text.empty()) return text;
    return InvalidArgument("{} is not a config key; {}", key, Suggestion(key));
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

namespace {

constexpr char kHead[] =
    R"(# Configuration

Generated from `proto/tandem/v1/config.proto` by `build/bin/tandem-config-docs > docs/reference/config.md`;
a test keeps the two equal. `tandemctl config explain KEY` prints one entry.

A config is a YAML file; `--set key=value` overrides it, in order, and lists are written
`--set 'rollout.stop=[a, b]'`. A key is a path: `rollout: {n: 8}`, `rollout.n: 8` and
`--set rollout.n=8` are the same. `null` restores the default. Relative paths start at the current
directory. `base: FILE`, at the top of a config, is not a key: that file, seen from this one's folder, is
read first, and this one changes it key by key. An unknown key, a wrong type or an impossible value stops the program before anything
starts, with file, line, key and the nearest valid key.

Values are written as in YAML or as in Hydra's overrides (`{a:1,b:[x,y]}`); `+key=value`, `++key=value` and `~key` are taken as Hydra
takes them. Keys have verl's paths where verl has the key. verl's full spellings (`actor_rollout_ref.rollout.n`)
are accepted as aliases and reported; the column *verl* says where meaning or default differ. Keys that only verl has are accepted,
and listed once, where they ask for nothing else than what is done here, and refused by name where they would change the result:
[verl.md](verl.md) has all of them.
)";

std::string Code(const std::string& text) { return text.empty() ? "" : "`" + text + "`"; }

std::string MeaningCell(const KeySpec& spec) {
  std::string text = spec.info.doc();
  if (!spec.info.choices().empty()) {
    text += fmt::format(" Choices: `{}`.", fmt::join(spec.info.choices(), "`, `"));
  }
  const std::string range = RangeText(spec);
  if (!range.empty()) text += " Range: " + range + ".";
  if (!spec.info.aliases().empty()) {
    text += fmt::format(" Also: `{}`.", fmt::join(spec.info.aliases(), "`, `"));
  }
  return MarkdownCell(text);
}

std::string KeyRow(const KeySpec& spec) {
  const std::string value =
      spec.info.required() ? "required" : Code(MarkdownCell(DefaultText(spec)));
  return fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", spec.key, TypeName(spec), value,
                     spec.info.unit(), MeaningCell(spec), MarkdownCell(spec.info.verl()));
}

std::string SectionHead(const KeySpec& spec) {
  std::string text = fmt::format("\n## {}\n\n{}", spec.key, spec.info.doc());
  for (const std::string& alias : spec.info.aliases()) {
    text += fmt::format(" verl: `{}`.", alias);
  }
  return text +
         "\n\n| key | type | default | unit | meaning | verl |\n"
         "|---|---|---|---|---|---|\n";
}

}  // namespace

std::string ConfigMarkdown() {
  std::string out = kHead;
  for (const KeySpec& spec : ConfigSchema()) {
    if (spec.section && spec.key.find('.') == std::string::npos) {
      out += SectionHead(spec);
    } else if (!spec.section) {
      out += KeyRow(spec);
    }
  }
  return out;
}

}  // namespace tandem
