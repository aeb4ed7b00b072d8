#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/config/config.h"
#include "common/config/key_text.h"
#include "common/config/schema.h"

namespace tandem {
namespace {

constexpr char kHead[] =
    R"(# Configuration

Generated from `proto/tandem/v1/config.proto` by `build/bin/tandem-config-docs > docs/config.md`;
a test keeps the two equal. `tandemctl config explain KEY` prints one entry.

A config is a YAML file; `--set key=value` overrides it, in order, and lists are written
`--set 'rollout.stop=[a, b]'`. A key is a path: `rollout: {n: 8}`, `rollout.n: 8` and
`--set rollout.n=8` are the same. `null` restores the default. Relative paths start at the current
directory. `base: FILE`, at the top of a config, is no key: that file, seen from this one's folder, is
read first, and this one changes it key by key. An unknown key, a wrong type or an impossible value stops the program before anything
starts, with file, line, key and the nearest valid key.

Keys have verl's paths where verl has the key. verl's full spellings (`actor_rollout_ref.rollout.n`)
are accepted as aliases and reported; the column *verl* says where meaning or default differ.
)";

std::string Cell(std::string text) {
  for (size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) {
    text.replace(at, 1, "\\|");
  }
  return text;
}

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
  return Cell(text);
}

std::string KeyRow(const KeySpec& spec) {
  const std::string value = spec.info.required() ? "required" : Code(Cell(DefaultText(spec)));
  return fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", spec.key, TypeName(spec), value,
                     spec.info.unit(), MeaningCell(spec), Cell(spec.info.verl()));
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
