#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
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
#include "common/config/yaml.h"

namespace tandem {
namespace {

// Not a key of the configuration: it names the file on which this one is based.
constexpr char kBaseKey[] = "base";

// A value of --set, or why it has none.
struct Override {
  std::string key;
  YAML::Node value;
  std::string problem;
};

// One source of keys, a file or all of --set; within a source, a key may be given only once.
struct Source {
  std::string place;  // "a.yaml" or "--set"
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
  bool resets_section = false;  // one of many keys that `section: null` gives their default
  std::string problem;          // empty, or the reason for no spec
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

Override ReadOverride(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return {.key = text, .problem = "an override is written key=value"};
  }
  const std::string key = text.substr(0, equals);
  if (key[0] == '+' || key[0] == '~') {  // Hydra's prefixes
    return {.key = text,
            .problem = fmt::format("every key is there already, and null gives it its default "
                                   "again: write it without {}",
                                   key.substr(0, key.find_first_not_of("+~")))};
  }
  const auto value = ParseYamlValue(text.substr(equals + 1));
  if (!value.ok()) return {.key = key, .problem = std::string(value.status().message())};
  return {.key = key, .value = *value};
}

// Stage 1: the files from the outermost base on, then --set.
absl::StatusOr<std::vector<Source>> ReadSources(const std::string& yaml_path,
                                                const std::vector<std::string>& overrides) {
  std::vector<Source> sources;
  if (!yaml_path.empty()) TANDEM_RETURN_IF_ERROR(ReadFile(yaml_path, {}, sources));
  Source set{.place = "--set"};
  for (const std::string& text : overrides) set.overrides.push_back(ReadOverride(text));
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
        if (override.problem.empty()) {
          all.AddEntry(override.key, override.value, source.place);
        } else {
          all.AddProblem(override.key, source.place, override.problem);
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
    // In a section that only verl has, the error for each key names its replacement.
    if (spec == nullptr && value.IsMap() && value.size() > 0 && IsVerlSection(spelled)) {
      return AddMap(spelled + ".", value);
    }
    if (spec == nullptr || key.find('[') != std::string::npos) {
      return AddProblem(spelled, place, "unknown key; " + Suggestion(spelled));
    }
    settings_.push_back(
        {.source = source_, .place = place, .spelled = spelled, .spec = spec, .value = value});
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

  // "a.yaml:12" or "--set".
  std::string Place(const YAML::Node& node) const {
    return source_->is_file ? fmt::format("{}:{}", source_->place, node.Mark().line + 1)
                            : source_->place;
  }

  const Source* source_ = nullptr;
  std::vector<Setting> settings_;
};

// Where a source gives a key for the first time.
using FirstPlaces = std::map<std::pair<const Source*, std::string>, const Setting*>;

// Empty, or why the value was not set.
std::string ApplySetting(const Setting& setting, FirstPlaces& first_places, LoadedConfig& loaded) {
  if (!setting.problem.empty()) return setting.problem;
  const KeySpec& spec = *setting.spec;
  if (!setting.resets_section) {
    const auto [first, is_new] = first_places.try_emplace({setting.source, spec.key}, &setting);
    // With --set, the last value of a key counts, if the key is spelled the same.
    if (!is_new && (setting.source->is_file || first->second->spelled != setting.spelled)) {
      return fmt::format("{} is already set at {}, as {}: leave one out", spec.key,
                         first->second->place, first->second->spelled);
    }
    if (setting.spelled != spec.key) {
      loaded.notices.push_back(
          fmt::format("{}: {} is verl's name for {}", setting.place, setting.spelled, spec.key));
    }
  }
  const absl::Status set = SetValue(spec, setting.value, ParentOf(spec.key, &loaded.config));
  if (!set.ok()) return std::string(set.message());
  if (setting.value.IsNull()) {
    loaded.origins.erase(spec.key);
  } else {
    loaded.origins[spec.key] = setting.place;
  }
  return "";
}

// Stage 3: every value into its field. InvalidArgument lists every problem of stages 2 and 3.
absl::Status SetValues(const std::vector<Setting>& settings, LoadedConfig& loaded) {
  FirstPlaces first_places;
  std::vector<std::string> problems;
  for (const Setting& setting : settings) {
    const std::string problem = ApplySetting(setting, first_places, loaded);
    if (problem.empty()) continue;
    problems.push_back(fmt::format("{}: {}: {}", setting.place, setting.spelled, problem));
  }
  if (problems.empty()) return absl::OkStatus();
  return InvalidArgument("{}", fmt::join(problems, "\n"));
}

// Stage 4: values that follow from others, and notices about keys without effect.
void DeriveValues(LoadedConfig& loaded) {
  ResolveConfig(&loaded.config, loaded.origins);
  const std::vector<std::string> unused = UnusedKeyNotices(loaded.config, loaded.origins);
  loaded.notices.insert(loaded.notices.end(), unused.begin(), unused.end());
}

}  // namespace

absl::StatusOr<LoadedConfig> LoadConfig(const std::string& yaml_path,
                                        const std::vector<std::string>& overrides) {
  LoadedConfig loaded;
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Source> sources, ReadSources(yaml_path, overrides));
  const std::vector<Setting> settings = CanonicalSettings::Collect(sources);
  TANDEM_RETURN_IF_ERROR(SetValues(settings, loaded));
  DeriveValues(loaded);
  return loaded;
}

}  // namespace tandem
