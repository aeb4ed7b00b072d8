#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include "common/base/status.h"
#include "common/config/field_value.h"
#include "common/config/loaded_config.h"
#include "common/config/schema.h"
#include "common/config/unused_keys.h"
#include "common/config/verl/hydra_value.h"
#include "common/config/verl/verl_rules.h"
#include "common/config/yaml.h"

namespace tandem {
namespace {

// Not a key of the configuration: it names the file on which this one is based.
constexpr char kBaseKey[] = "base";

// A value of --set, or why it has none.
struct Override {
  std::string key;
  std::string place;
  YAML::Node value;
  std::string problem;
};

// One source of keys, a file or all of --set; within a source, a key may be given only once.
struct Source {
  std::string place;  // of a file: "a.yaml"
  bool is_file = false;
  YAML::Node root;                  // of a file: a mapping
  std::vector<Override> overrides;  // of --set
};

// A key to which a source gives a value, or why it cannot.
struct Setting {
  const Source* source = nullptr;
  std::string place;    // "a.yaml:12" or "--set"
  std::string spelled;  // as written there
  const KeySpec* spec = nullptr;
  YAML::Node value;
  bool resets_section = false;     // one of many keys that `section: null` gives their default
  std::string inner;               // of a JSON object: the entry below it that is set, "a.b"
  const VerlRule* rule = nullptr;  // of a key of verl's that this schema does not have
  std::string problem;             // empty, or the reason for no spec
};

// The file that another one is based on.
struct Base {
  std::string path;   // empty: none
  std::string place;  // "a.yaml:3: base"
};

// Reads the `base` of `root`, a file at `path`.
absl::StatusOr<Base> ReadBase(const YAML::Node& root, const std::string& path) {
  Base base;
  for (const auto& item : root) {
    if (!item.first.IsScalar() || item.first.Scalar() != kBaseKey) continue;
    const std::string place = fmt::format("{}:{}: {}", path, item.first.Mark().line + 1, kBaseKey);
    if (!base.place.empty()) {
      return InvalidArgument("{}: a file is based on one other, and {} names one already", place,
                             base.place);
    }
    if (!item.second.IsScalar() || item.second.Scalar().empty()) {
      return InvalidArgument("{}: names one other config file, from this file's folder", place);
    }
    base = {(std::filesystem::path(path).parent_path() / item.second.Scalar())
                .lexically_normal()
                .string(),
            place};
  }
  return base;
}

// Appends the file's base, and then the file. `open`: the files based on this one, directly or not.
absl::Status ReadFile(const std::string& path,
                      std::vector<std::string> open,
                      std::vector<Source>& sources) {
  if (std::find(open.begin(), open.end(), path) != open.end()) {
    return InvalidArgument("base keys form a cycle through these files: {}", fmt::join(open, ", "));
  }
  TANDEM_ASSIGN_OR_RETURN(const YAML::Node root, ReadYamlFile(path));
  if (root.IsNull()) return absl::OkStatus();
  if (!root.IsMap()) {
    return InvalidArgument("{}:1: a config file is a mapping of sections", path);
  }
  TANDEM_ASSIGN_OR_RETURN(const Base base, ReadBase(root, path));
  open.push_back(path);
  if (!base.path.empty()) {
    TANDEM_RETURN_IF_ERROR(Annotate(ReadFile(base.path, open, sources), base.place));
  }
  sources.push_back({.place = path, .is_file = true, .root = root});
  return absl::OkStatus();
}

// Whether YAML took an entry that Hydra writes key:value, without a space, for a key alone.
bool HasHydraMapping(const YAML::Node& node) {
  if (node.IsSequence()) return std::any_of(node.begin(), node.end(), HasHydraMapping);
  if (!node.IsMap()) return false;
  return std::any_of(node.begin(), node.end(), [](const auto& item) {
    const bool joined = item.first.IsScalar() && item.first.Tag() != "!" &&
                        item.first.Scalar().find(':') != std::string::npos;
    return (joined && item.second.IsNull()) || HasHydraMapping(item.second);
  });
}

// YAML and Hydra write lists and most values alike; what only Hydra writes so is read as Hydra
// does.
absl::StatusOr<YAML::Node> ReadOverrideValue(const std::string& text) {
  auto yaml = ParseYamlValue(text);
  bool cast = false;
  for (const char* name : {"int(", "float(", "str(", "bool("}) cast |= text.starts_with(name);
  if (yaml.ok() && !cast && !HasHydraMapping(*yaml)) return yaml;
  const auto hydra = HydraValueToYaml(text);
  return hydra.ok() ? ParseYamlValue(*hydra) : yaml;
}

Override ReadOverride(const ConfigOverride& given) {
  const auto split = SplitHydraOverride(given.text);
  if (!split.ok()) {
    return {
        .key = given.text, .place = given.place, .problem = std::string(split.status().message())};
  }
  Override read{.key = split->key, .place = given.place};
  if (!split->value.has_value()) return read;  // null: the default
  const auto value = ReadOverrideValue(*split->value);
  if (value.ok()) {
    read.value = *value;
  } else {
    read.problem = std::string(value.status().message());
  }
  return read;
}

// Stage 1: the files from the outermost base on, then --set.
absl::StatusOr<std::vector<Source>> ReadSources(const std::string& yaml_path,
                                                const std::vector<ConfigOverride>& overrides) {
  std::vector<Source> sources;
  if (!yaml_path.empty()) TANDEM_RETURN_IF_ERROR(ReadFile(yaml_path, {}, sources));
  Source set;
  for (const ConfigOverride& given : overrides) set.overrides.push_back(ReadOverride(given));
  sources.push_back(std::move(set));
  return sources;
}

// Stage 2: what each source sets, in order, under the schema's own names of the keys.
class CanonicalSettings {
 public:
  static std::vector<Setting> Collect(const std::vector<Source>& sources) {
    CanonicalSettings all;
    for (const Source& source : sources) {
      all.source_ = &source;
      if (source.is_file) all.AddMap("", source.root);
      for (const Override& override : source.overrides) {
        all.override_place_ = override.place;
        if (override.problem.empty()) {
          all.AddEntry(override.key, override.value, override.place);
        } else {
          all.AddProblem(override.key, override.place, override.problem);
        }
      }
    }
    return std::move(all.settings_);
  }

 private:
  void AddMap(const std::string& prefix, const YAML::Node& map) {
    for (const auto& item : map) {
      if (prefix.empty() && item.first.IsScalar() && item.first.Scalar() == kBaseKey) continue;
      const std::string place = Place(item.first);
      if (item.first.IsScalar()) {
        AddEntry(prefix + item.first.Scalar(), item.second, place);
      } else {
        AddProblem(prefix + "?", place, "a key is a plain word");
      }
    }
  }

  void AddEntry(const std::string& spelled, const YAML::Node& value, const std::string& place) {
    const std::string key = CanonicalKey(spelled);
    const KeySpec* spec = FindKey(key);
    if ((spec != nullptr && spec->section) || (spec == nullptr && IsAliasBeginning(spelled))) {
      if (value.IsMap()) return AddMap(spelled + ".", value);
      if (value.IsNull()) return AddReset(key, place);
      return AddProblem(spelled, place, "is a section: it holds keys, not a value");
    }
    if (spec == nullptr || key.find('[') != std::string::npos) {
      return AddOther(spelled, key, value, place);
    }
    settings_.push_back(
        {.source = source_, .place = place, .spelled = spelled, .spec = spec, .value = value});
  }

  // A key that the schema does not have, but maybe verl.
  void AddOther(const std::string& spelled,
                const std::string& key,
                const YAML::Node& value,
                const std::string& place) {
    if (const KeySpec* object = JsonAbove(key); object != nullptr) {
      settings_.push_back({.source = source_,
                           .place = place,
                           .spelled = spelled,
                           .spec = object,
                           .value = value,
                           .inner = key.substr(object->key.size() + 1)});
      return;
    }
    const bool is_verls = HasVerlRules(key);
    // In a section that only verl has, each key is accepted or refused for itself.
    if (is_verls && value.IsMap() && value.size() > 0) return AddMap(spelled + ".", value);
    const VerlRule* rule = FindVerlRule(key);
    if (rule == nullptr && !(is_verls && value.IsNull())) {
      return AddProblem(spelled, place, "unknown key; " + SuggestionFor(spelled, key));
    }
    settings_.push_back(
        {.source = source_, .place = place, .spelled = spelled, .value = value, .rule = rule});
  }

  // In a section of which only known keys are accepted, one of those.
  static std::string SuggestionFor(const std::string& spelled, const std::string& key) {
    const std::string nearest = NearestKey(spelled);
    if (!nearest.empty()) return SuggestionOf(nearest);
    const std::vector<std::string> beside = VerlKeysBeside(key);
    if (beside.empty()) return SuggestionOf(nearest);
    const std::string among = SuggestionAmong(key, beside);
    if (!among.empty()) return among;
    return "it may change the result: leave it out; docs/reference/verl.md has the known keys";
  }

  // The key of a JSON object that `key` is an entry of, or nullptr.
  static const KeySpec* JsonAbove(std::string key) {
    for (size_t dot = key.rfind('.'); dot != std::string::npos; dot = key.rfind('.')) {
      key.resize(dot);
      const KeySpec* spec = FindKey(key);
      if (spec != nullptr) return spec->info.json() && !spec->field->is_repeated() ? spec : nullptr;
    }
    return nullptr;
  }

  // Every key of the section gets its default again.
  void AddReset(const std::string& section, const std::string& place) {
    for (const KeySpec& spec : ConfigSchema()) {
      if (spec.section || !spec.key.starts_with(section + ".") ||
          spec.key.find('[') != std::string::npos) {
        continue;
      }
      settings_.push_back({.source = source_,
                           .place = place,
                           .spelled = spec.key,
                           .spec = &spec,
                           .resets_section = true});
    }
  }

  void AddProblem(const std::string& spelled, const std::string& place, const std::string& text) {
    settings_.push_back({.source = source_, .place = place, .spelled = spelled, .problem = text});
  }

  // Of a node of a file: "a.yaml:12". A value of an override has no place of its own.
  std::string Place(const YAML::Node& node) const {
    return source_->is_file ? fmt::format("{}:{}", source_->place, node.Mark().line + 1)
                            : override_place_;
  }

  const Source* source_ = nullptr;
  std::string override_place_;
  std::vector<Setting> settings_;
};

// Where a source gives a key for the first time.
using FirstPlaces = std::map<std::pair<const Source*, std::string>, const Setting*>;

// A value as it was written: "" for what holds others.
std::string ValueText(const YAML::Node& node) {
  if (node.IsNull()) return "null";
  if (node.IsScalar()) return node.Scalar();
  return node.size() > 0 ? "" : node.IsMap() ? "{}" : "[]";
}

bool HasInterpolation(const YAML::Node& node) {
  if (node.IsScalar()) return node.Scalar().find("${") != std::string::npos;
  if (node.IsSequence()) return std::any_of(node.begin(), node.end(), HasInterpolation);
  return false;
}

// The value with verl's own words for values replaced; what has no effect is noted.
YAML::Node OurValue(const Setting& setting, LoadedConfig& loaded) {
  const auto translate = [&](const YAML::Node& entry) -> std::optional<std::string> {
    const VerlValue* theirs =
        entry.IsScalar() ? FindVerlValue(setting.spec->key, entry.Scalar()) : nullptr;
    if (theirs == nullptr) return std::nullopt;
    loaded.without_effect.push_back({.key = fmt::format("{}={}", setting.spelled, theirs->value),
                                     .place = setting.place,
                                     .reason = std::string(theirs->reason)});
    return std::string(theirs->instead);
  };
  const bool is_list = setting.spec->field->is_repeated();
  if (!is_list || !setting.value.IsSequence()) {
    const auto instead = translate(setting.value);
    if (!instead.has_value()) return setting.value;
    if (is_list && instead->empty()) return YAML::Node(YAML::NodeType::Sequence);
    return YAML::Node(*instead);
  }
  YAML::Node list(YAML::NodeType::Sequence);
  for (const YAML::Node& entry : setting.value) {
    const auto instead = translate(entry);
    if (!instead.has_value()) {
      list.push_back(entry);
    } else if (!instead->empty()) {
      list.push_back(*instead);
    }
  }
  return list;
}

// Sets one entry of the JSON object that the key holds; null takes it out.
absl::Status SetJsonEntry(const Setting& setting, LoadedConfig& loaded) {
  google::protobuf::Message* parent = ParentMessage(setting.spec->key, &loaded.config);
  const std::string before = parent->GetReflection()->GetString(*parent, setting.spec->field);
  TANDEM_ASSIGN_OR_RETURN(const std::string after,
                          WithJsonEntry(before, setting.inner, setting.value));
  return SetValue(*setting.spec, YAML::Node(after), parent);
}

// Empty, or why a key that only verl has cannot be honoured.
std::string ApplyVerlRule(const Setting& setting, LoadedConfig& loaded) {
  const std::string value = ValueText(setting.value);
  // No rule that refuses anything names a list as what it accepts.
  const bool holds_others = !setting.value.IsScalar() && value.empty();
  if (setting.rule != nullptr &&
      (holds_others ? !setting.rule->remedy.empty() : !VerlRuleAccepts(*setting.rule, value))) {
    return fmt::format("{}cannot be honoured: {}; {}", value.empty() ? "" : value + " ",
                       setting.rule->reason, setting.rule->remedy);
  }
  if (setting.value.IsNull()) return "";  // asks for nothing
  loaded.without_effect.push_back(
      {.key = setting.spelled,
       .value = value,
       .place = setting.place,
       .reason = setting.rule == nullptr ? "" : std::string(setting.rule->reason)});
  return "";
}

// Whether two settings give a key the same value.
bool Agree(const Setting& a, const Setting& b) {
  return a.value.IsScalar() && b.value.IsScalar() && a.value.Scalar() == b.value.Scalar();
}

// Empty, or why the value was not set.
std::string ApplySetting(const Setting& setting, FirstPlaces& first_places, LoadedConfig& loaded) {
  if (!setting.problem.empty()) return setting.problem;
  if (setting.spec == nullptr) return ApplyVerlRule(setting, loaded);
  const KeySpec& spec = *setting.spec;
  if (HasInterpolation(setting.value)) {
    return "${...} is not resolved here: write the value that it stands for";
  }
  if (!setting.resets_section && setting.inner.empty()) {
    const auto [first, is_new] = first_places.try_emplace({setting.source, spec.key}, &setting);
    // With --set, the last value of a key counts, if the key is spelled the same.
    const bool again = setting.source->is_file || first->second->spelled != setting.spelled;
    if (!is_new && again && (setting.source->is_file || !Agree(setting, *first->second))) {
      return fmt::format("{} is already set at {}, as {}: leave one out", spec.key,
                         first->second->place, first->second->spelled);
    }
  }
  const absl::Status set = setting.inner.empty() ? SetValue(spec, OurValue(setting, loaded),
                                                            ParentMessage(spec.key, &loaded.config))
                                                 : SetJsonEntry(setting, loaded);
  if (!set.ok()) return std::string(set.message());
  if (setting.value.IsNull() && setting.inner.empty()) {
    loaded.origins.erase(spec.key);
  } else {
    loaded.origins[spec.key] = setting.place;
  }
  return "";
}

// Of several overrides that spell a key the same, the last one counts, as with Hydra: only the
// others are here.
std::set<const Setting*> Superseded(const std::vector<Setting>& settings) {
  std::map<std::string, const Setting*> last;
  std::set<const Setting*> superseded;
  for (const Setting& setting : settings) {
    if (setting.source->is_file || setting.resets_section) continue;
    // A key that devices share is several settings, and each has its last one.
    const std::string key = setting.rule != nullptr   ? CanonicalKey(setting.spelled)
                            : setting.spec == nullptr ? setting.spelled
                                                      : setting.spelled + " " + setting.spec->key;
    const auto [known, is_new] = last.try_emplace(key, &setting);
    if (!is_new) superseded.insert(std::exchange(known->second, &setting));
  }
  return superseded;
}

// Stage 3: every value into its field. InvalidArgument lists every problem of stages 2 and 3, and
// all keys that one rule refuses, such as Megatron's, as one.
absl::Status SetValues(const std::vector<Setting>& settings, LoadedConfig& loaded) {
  FirstPlaces first_places;
  std::vector<std::string> problems;
  std::map<const VerlRule*, std::pair<size_t, int>> refused;  // its problem, and how many more
  const std::set<const Setting*> superseded = Superseded(settings);
  for (const Setting& setting : settings) {
    if (superseded.contains(&setting)) continue;
    const std::string problem = ApplySetting(setting, first_places, loaded);
    if (problem.empty()) continue;
    if (setting.rule != nullptr) {
      const auto [first, is_new] = refused.try_emplace(setting.rule, problems.size(), 0);
      if (!is_new) {
        ++first->second.second;
        continue;
      }
    }
    problems.push_back(fmt::format("{}: {}: {}", setting.place, setting.spelled, problem));
  }
  for (const auto& [rule, place] : refused) {
    if (place.second == 0) continue;
    problems[place.first] += fmt::format(" (as {} more of {})", place.second, rule->key);
  }
  if (problems.empty()) return absl::OkStatus();
  return InvalidArgument("{}", fmt::join(problems, "\n"));
}

// One line about verl's names of keys that were used, and one about keys that have no effect.
void NoteVerlKeys(const std::vector<Setting>& settings, LoadedConfig& loaded) {
  std::vector<std::string> renamed;
  for (const Setting& setting : settings) {
    if (setting.spec == nullptr || setting.resets_section || !setting.inner.empty()) continue;
    if (setting.spelled == setting.spec->key) continue;
    const std::string text = fmt::format("{} is {}", setting.spelled, setting.spec->key);
    if (std::find(renamed.begin(), renamed.end(), text) == renamed.end()) renamed.push_back(text);
  }
  if (!renamed.empty()) {
    loaded.notices.push_back(fmt::format("verl's names of keys: {}", fmt::join(renamed, ", ")));
  }
  std::vector<std::string> idle;
  for (const KeyWithoutEffect& key : loaded.without_effect) {
    if (std::find(idle.begin(), idle.end(), key.key) == idle.end()) idle.push_back(key.key);
  }
  if (idle.empty()) return;
  loaded.notices.push_back(
      fmt::format("{} here: {}; `tandemctl config explain KEY` says why",
                  idle.size() == 1 ? "1 verl key has no effect"
                                   : fmt::format("{} verl keys have no effect", idle.size()),
                  fmt::join(idle, ", ")));
}

// Stage 4: values that follow from others, and notices about keys without effect.
void DeriveValues(LoadedConfig& loaded) {
  ResolveConfig(&loaded.config, loaded.origins);
  const std::vector<std::string> unused = UnusedKeyNotices(loaded.config, loaded.origins);
  loaded.notices.insert(loaded.notices.end(), unused.begin(), unused.end());
  // With adapters the reference policy is the base that is trained on, which stays where it is.
  if (loaded.config.model().lora().rank() > 0) loaded.config.mutable_ref()->set_offload(false);
}

absl::StatusOr<LoadedConfig> Load(const std::string& yaml_path,
                                  const std::vector<ConfigOverride>& overrides) {
  LoadedConfig loaded;
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Source> sources, ReadSources(yaml_path, overrides));
  const std::vector<Setting> settings = CanonicalSettings::Collect(sources);
  TANDEM_RETURN_IF_ERROR(SetValues(settings, loaded));
  NoteVerlKeys(settings, loaded);
  DeriveValues(loaded);
  return loaded;
}

}  // namespace

absl::StatusOr<LoadedConfig> LoadConfig(const std::string& yaml_path,
                                        const std::vector<std::string>& overrides) {
  std::vector<ConfigOverride> placed;
  for (const std::string& text : overrides) placed.push_back({.text = text, .place = "--set"});
  return Load(yaml_path, placed);
}

absl::StatusOr<LoadedConfig> LoadOverrides(const std::vector<ConfigOverride>& overrides) {
  return Load("", overrides);
}

}  // namespace tandem
