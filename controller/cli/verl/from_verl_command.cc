#include "controller/cli/verl/from_verl_command.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/time/clock.h>
#include <fmt/format.h>

#include "common/base/status.h"
#include "common/config/config.h"
#include "common/config/loaded_config.h"
#include "common/config/schema.h"
#include "common/config/verl/hydra_value.h"
#include "common/config/verl/known_keys.h"
#include "common/config/verl/verl_rules.h"
#include "common/formats/files.h"

namespace tandem {
namespace {

// What makes a whole script one that cannot be trained here, told in one line instead of one for
// each of its keys. `value`: "" for any but null.
struct ScriptKind {
  std::string_view key;  // canonical: the key, or a section of it
  std::string_view value;
  std::string_view what;
};

constexpr ScriptKind kOtherKinds[] = {
    {"actor.strategy", "megatron", "a script for Megatron"},
    {"actor.megatron", "", "a script for Megatron"},
    {"ref.megatron", "", "a script for Megatron"},
    {"actor.strategy", "veomni", "a script for VeOmni"},
    {"actor.veomni", "", "a script for VeOmni"},
    {"ref.veomni", "", "a script for VeOmni"},
    {"actor.engine", "", "a script for Megatron-Lite"},
    {"data.image_key", "", "a script for images"},
    {"data.video_key", "", "a script for videos"},
    {"data.audio_key", "", "a script for audio"},
    {"actor.strategy", "fsdp_turbo", "a script for fsdp_turbo"},
    {"trainer.device", "npu", "a script for NPUs"},
    {"global_profiler.tool", "npu", "a script for NPUs"},
    {"rollout.engine_kwargs.sglang.attention_backend", "ascend", "a script for NPUs"},
};

// Where verl and Tandem have other defaults, verl's are written out for these: they decide what is
// trained. Everything else is a matter of the machine.
bool DecidesResult(const std::string& key) {
  for (const char* outside : {"actor.fsdp_config.", "actor.checkpoint."}) {
    if (key.starts_with(outside)) return false;
  }
  for (const char* section : {"data.", "algorithm.", "actor.", "reward.", "rollout.val_kwargs."}) {
    if (key.starts_with(section)) return true;
  }
  for (const char* one : {"rollout.n", "rollout.temperature", "rollout.top_p", "rollout.top_k",
                          "trainer.total_epochs", "trainer.val_before_train", "trainer.test_freq",
                          "trainer.save_freq", "trainer.balance_batch"}) {
    if (key == one) return true;
  }
  return false;
}

std::string Unquoted(const std::string& value) {
  const bool quoted =
      value.size() >= 2 && (value[0] == '"' || value[0] == '\'') && value.back() == value[0];
  return absl::AsciiStrToLower(quoted ? value.substr(1, value.size() - 2) : value);
}

// Takes --config-name and its like out of the arguments; what is left are overrides.
absl::Status TakeHydraFlags(const std::string& name, std::vector<ScriptArgument>& arguments) {
  std::vector<ScriptArgument> overrides;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const ScriptArgument& argument = arguments[i];
    if (!argument.text.starts_with('-')) {
      overrides.push_back(argument);
      continue;
    }
    const size_t equals = argument.text.find('=');
    const std::string flag = argument.text.substr(0, equals);
    const bool names = flag == "--config-name" || flag == "-cn";
    if (!names && flag != "--config-path" && flag != "-cp" && flag != "--config-dir" &&
        flag != "-cd") {
      return InvalidArgument("{}:{}: {} is no flag of Hydra's that is read here: leave it out",
                             name, argument.line, argument.text);
    }
    std::string value = equals == std::string::npos ? "" : argument.text.substr(equals + 1);
    if (equals == std::string::npos && i + 1 < arguments.size()) value = arguments[++i].text;
    value = Unquoted(value);
    if (value.ends_with(".yaml")) value.resize(value.size() - 5);
    if (!names || value == "ppo_trainer") continue;
    if (absl::StrContains(value, "megatron")) {
      return InvalidArgument(
          "{}:{}: {}: a script for Megatron is not started here: use verl's FSDP script of the "
          "model",
          name, argument.line, argument.text);
    }
    return InvalidArgument(
        "{}:{}: {}: only ppo_trainer, verl's own configuration, is known here: give what the file "
        "changes of it as overrides",
        name, argument.line, argument.text);
  }
  arguments = std::move(overrides);
  return absl::OkStatus();
}

absl::Status RefuseOtherKinds(const std::vector<ConfigOverride>& overrides) {
  std::map<std::string, size_t> last;  // of a key, which alone counts: ~key takes it out
  for (size_t i = 0; i < overrides.size(); ++i) {
    const auto split = SplitHydraOverride(overrides[i].text);
    if (split.ok()) last[CanonicalKey(split->key)] = i;
  }
  for (size_t i = 0; i < overrides.size(); ++i) {
    const ConfigOverride& override = overrides[i];
    const auto split = SplitHydraOverride(override.text);
    if (!split.ok() || !split->value.has_value()) continue;
    const std::string key = CanonicalKey(split->key);
    if (last[key] != i) continue;
    const std::string value = Unquoted(*split->value);
    for (const ScriptKind& kind : kOtherKinds) {
      const bool of_key = key == kind.key || key.starts_with(std::string(kind.key) + ".");
      const bool of_value = kind.value.empty() ? value != "null" : value == kind.value;
      if (!of_key || !of_value) continue;
      return InvalidArgument(
          "{}: {}: {} is not started here: models and data are text, trained on CPUs or NVIDIA "
          "GPUs "
          "as FSDP trains; use such a script of the model, or take the key out",
          override.place, override.text, kind.what);
    }
  }
  return absl::OkStatus();
}

// The overrides that set keys of the schema, by key; the last one counts.
class OverrideTexts {
 public:
  explicit OverrideTexts(const std::vector<ConfigOverride>& overrides) {
    for (const ConfigOverride& override : overrides) {
      const auto split = SplitHydraOverride(override.text);
      if (!split.ok()) continue;
      const std::string key = CanonicalKey(split->key);
      texts_[key] = &override;
      // An entry of a JSON object stands for the object, too.
      const size_t dot = key.rfind('.');
      if (dot != std::string::npos && FindKey(key) == nullptr) {
        texts_[key.substr(0, dot)] = &override;
      }
    }
  }

  // The override of `key` or of a section around it.
  std::string Of(std::string key) const {
    while (true) {
      const auto found = texts_.find(key);
      if (found != texts_.end()) {
        return fmt::format("{}: {}", found->second->place, OneLine(found->second->text));
      }
      const size_t dot = key.rfind('.');
      if (dot == std::string::npos) return "";
      key.resize(dot);
    }
  }

  // For a comment, which ends with the line.
  static std::string OneLine(std::string text) {
    std::replace_if(
        text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
    return text;
  }

 private:
  std::map<std::string, const ConfigOverride*> texts_;
};

// A line of the YAML: what follows the colon, and why.
struct OutputLine {
  std::string value;
  std::string origin;
};
using OutputLines = std::map<std::string, OutputLine>;

// verl's default of `key`, where it is one value that Tandem's loader takes and not Tandem's own.
std::optional<std::string> OtherDefault(const VerlKey& known, const std::string& key) {
  const std::string text = known.default_value == nullptr ? "null" : known.default_value;
  if (text == "null" || absl::StrContains(text, "${") || absl::StrContains(text, "???"))
    return std::nullopt;
  const auto theirs = LoadOverrides({{.text = fmt::format("{}={}", key, text), .place = "verl"}});
  const std::string ours = KeyToYaml(DefaultConfig(), key);
  if (!theirs.ok()) return std::nullopt;
  std::string value = KeyToYaml(theirs->config, key);
  if (value == ours) return std::nullopt;
  return value;
}

// Adds verl's defaults that decide the result, and lists the others.
void AddDefaults(const LoadedConfig& loaded, OutputLines& lines, std::string& others) {
  std::set<std::string> listed;  // in `others`
  for (const VerlKey& known : KnownVerlKeys()) {
    // verl reads this section with Megatron only; with FSDP it is model.lora_rank and its like.
    if (known.key.starts_with("actor_rollout_ref.model.lora.")) continue;
    const std::string key = CanonicalKey(std::string(known.key));
    const KeySpec* spec = FindKey(key);
    if (spec == nullptr || spec->section || loaded.origins.contains(key) || lines.contains(key))
      continue;
    const std::optional<std::string> value = OtherDefault(known, key);
    if (!value.has_value()) continue;
    const std::string ours = KeyToYaml(loaded.config, key);
    // Names of files are of another machine, and a key that others switch on is theirs to mention.
    if (spec->info.path() || spec->info.json()) continue;
    if (DecidesResult(key) && spec->info.only_if().empty() &&
        key != "actor.optim.lr_warmup_steps") {
      lines[key] = {*value,
                    fmt::format("verl's default; Tandem's is {}", KeyToYaml(DefaultConfig(), key))};
    } else if (listed.insert(key).second) {
      others += fmt::format("#   {}: {} here; verl's default is {}\n", key, ours, *value);
    }
  }
  for (const KeySpec& spec : ConfigSchema()) {
    const std::string& verl = spec.info.verl();
    const bool told =
        loaded.origins.contains(spec.key) || lines.contains(spec.key) || listed.contains(spec.key);
    if (told || spec.section || !absl::StrContains(verl, "verl's default")) continue;
    others +=
        fmt::format("#   {}: {} here; {}\n", spec.key, KeyToYaml(loaded.config, spec.key), verl);
  }
}

std::string Render(const OutputLines& lines) {
  std::string out, section;
  for (const KeySpec& spec : ConfigSchema()) {
    const auto line = lines.find(spec.key);
    if (line == lines.end()) continue;
    const size_t dot = spec.key.find('.');
    if (spec.key.substr(0, dot) != section) {
      section = spec.key.substr(0, dot);
      out += fmt::format("\n{}:\n", section);
    }
    const std::string text = fmt::format("  {}: {}", spec.key.substr(dot + 1), line->second.value);
    out += fmt::format("{:<48} # {}\n", text, line->second.origin);
  }
  return out;
}

std::string Comments(const std::string& title, const std::string& lines) {
  return lines.empty() ? "" : fmt::format("\n# {}\n{}", title, lines);
}

// Adds to the overrides what the user gave to a script that does not pass on "$@".
absl::Status AddArguments(const std::string& name,
                          const std::vector<std::string>& given,
                          ScriptCommand& command) {
  for (const std::string& argument : given) {
    const bool passed_on =
        std::any_of(command.arguments.begin(), command.arguments.end(),
                    [&](const ScriptArgument& known) { return known.text == argument; });
    if (passed_on) continue;
    if (absl::StrContains(argument, "=") || argument.starts_with('~')) {
      command.arguments.push_back({.text = argument});
    } else if (std::find(command.unread.begin(), command.unread.end(), argument) !=
               command.unread.end()) {
      return InvalidArgument(
          "command line: {}: the script {} does not read this argument, and it is no override, "
          "which is written key=value or ~key: leave it out",
          argument, name);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ConfigFromVerl(const std::string& name,
                                           const std::string& script,
                                           const ScriptContext& context) {
  auto evaluated = EvaluateScript(script, context);
  if (!evaluated.ok()) {
    return InvalidArgument("{}:{}", name, std::string(evaluated.status().message()));
  }
  ScriptCommand command = *std::move(evaluated);
  TANDEM_RETURN_IF_ERROR(AddArguments(name, context.arguments, command));
  TANDEM_RETURN_IF_ERROR(TakeHydraFlags(name, command.arguments));
  std::vector<ConfigOverride> overrides;
  for (const ScriptArgument& argument : command.arguments) {
    overrides.push_back({argument.text, argument.line == 0
                                            ? "command line"
                                            : fmt::format("{}:{}", name, argument.line)});
  }
  TANDEM_RETURN_IF_ERROR(RefuseOtherKinds(overrides));
  TANDEM_ASSIGN_OR_RETURN(const LoadedConfig loaded, LoadOverrides(overrides));
  const OverrideTexts texts(overrides);
  OutputLines lines;
  for (const auto& [key, place] : loaded.origins) {
    lines[key] = {KeyToYaml(loaded.config, key), texts.Of(key)};
  }
  std::string others, idle, assumed;
  AddDefaults(loaded, lines, others);
  for (const KeyWithoutEffect& key : loaded.without_effect) {
    const std::string value = key.value.empty() ? "" : "=" + OverrideTexts::OneLine(key.value);
    idle += fmt::format("#   {}: {}{}: {}\n", key.place, OverrideTexts::OneLine(key.key), value,
                        key.reason);
  }
  for (const std::string& note : command.notes) {
    assumed += fmt::format("#   {}\n", OverrideTexts::OneLine(note));
  }
  return fmt::format(
             "# Made from {} by `tandemctl config from-verl`. verl's defaults are those of {}.\n"
             "# What a key means: `tandemctl config explain KEY`.\n",
             OverrideTexts::OneLine(name), KnownVerlVersions()) +
         Render(lines) + Comments("verl's keys without effect here, and why:", idle) +
         Comments("Tandem's own defaults were kept where verl's are others:", others) +
         Comments("Assumed about the script:", assumed);
}

namespace {

// Overrides alone become the command that they are of.
std::string AsScript(const std::string& text) {
  if (absl::StrContains(text, "main_ppo")) return text;
  std::string script = "python3 -m verl.trainer.main_ppo";
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    while (line.ends_with('\\') || line.ends_with(' ') || line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos || line.starts_with('#')) line.clear();
    script += " \\\n" + line;
  }
  return script + "\n";
}

// Replaces `file` at once, and says that it did.
absl::Status WriteYaml(const std::string& file, const std::string& yaml, std::ostream& out) {
  std::error_code error;
  const bool existed = std::filesystem::exists(file, error);
  if (existed && !std::filesystem::is_regular_file(file, error)) {
    return InvalidArgument(
        "{} is not a regular file, and is not replaced: name another file, or leave -o out for "
        "standard output",
        file);
  }
  TANDEM_RETURN_IF_ERROR(WriteFileAtomically(file, yaml));
  out << "wrote " << file << (existed ? ", in place of the file that was there\n" : "\n");
  return absl::OkStatus();
}

}  // namespace

absl::Status FromVerlCommand(const FromVerlOptions& options, std::istream& in, std::ostream& out) {
  const bool piped = options.script.empty() || options.script == "-";
  std::string text;
  if (piped) {
    text = AsScript(std::string(std::istreambuf_iterator<char>(in), {}));
  } else {
    std::ifstream file(options.script, std::ios::binary);
    if (!file) return absl::NotFoundError(fmt::format("script {} cannot be read", options.script));
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  const ScriptContext context{
      .environment = [](const std::string& name) -> std::optional<std::string> {
        const char* value = std::getenv(name.c_str());
        return value == nullptr ? std::nullopt : std::optional<std::string>(value);
      },
      .arguments = options.arguments,
      .now = absl::Now()};
  TANDEM_ASSIGN_OR_RETURN(const std::string yaml,
                          ConfigFromVerl(piped ? "stdin" : options.script, text, context));
  if (options.output.empty()) {
    out << yaml;
    return absl::OkStatus();
  }
  return WriteYaml(options.output, yaml, out);
}

}  // namespace tandem
