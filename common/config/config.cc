#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

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

// No key of the configuration: the file that this one changes.
constexpr char kBaseKey[] = "base";

// Walks YAML into a LoadedConfig and collects every problem instead of stopping at the first.
class Loader {
 public:
  explicit Loader(LoadedConfig* loaded) : loaded_(loaded) {}

  // `place` is "a.yaml" and gets ":line" appended, or "--set", which has no lines.
  void Source(const std::string& place, bool has_lines) {
    place_ = place;
    has_lines_ = has_lines;
    in_this_source_.clear();
  }

  void Map(const std::string& prefix, const YAML::Node& map) {
    for (const auto& item : map) {
      const std::string where = Where(item.first);
      if (prefix.empty() && item.first.IsScalar() && item.first.Scalar() == kBaseKey) continue;
      if (!item.first.IsScalar()) {
        Problem(where, prefix + "?", "a key is a plain word");
        continue;
      }
      Entry(prefix + item.first.Scalar(), item.second, where);
    }
  }

  void Entry(const std::string& spelled, const YAML::Node& value, const std::string& where) {
    const std::string key = CanonicalKey(spelled);
    const KeySpec* spec = FindKey(key);
    if ((spec != nullptr && spec->section) || (spec == nullptr && IsAliasBeginning(spelled))) {
      if (value.IsMap()) return Map(spelled + ".", value);
      if (value.IsNull()) return Reset(key);
      return Problem(where, spelled, "is a section: it holds keys, not a value");
    }
    // Of a section of verl's each key is told what to use instead.
    if (spec == nullptr && value.IsMap() && value.size() > 0 && IsVerlSection(spelled)) {
      return Map(spelled + ".", value);
    }
    if (spec == nullptr || key.find('[') != std::string::npos) {
      return Problem(where, spelled, "unknown key; " + Suggestion(spelled));
    }
    Leaf(*spec, spelled, value, where);
  }

  void Problem(const std::string& where, const std::string& key, const std::string& text) {
    problems_.push_back(fmt::format("{}: {}: {}", where, key, text));
  }

  absl::Status status() const {
    if (problems_.empty()) return absl::OkStatus();
    return InvalidArgument("{}", fmt::join(problems_, "\n"));
  }

 private:
  // Every key of the section gets its default again.
  void Reset(const std::string& section) {
    for (const KeySpec& spec : ConfigSchema()) {
      if (spec.section || !spec.key.starts_with(section + ".") ||
          spec.key.find('[') != std::string::npos) {
        continue;
      }
      // Cannot fail: null is any key's default.
      (void)SetValue(spec, YAML::Node(), ParentOf(spec.key, &loaded_->config));
      loaded_->origins.erase(spec.key);
    }
  }

  std::string Where(const YAML::Node& node) const {
    return has_lines_ ? fmt::format("{}:{}", place_, node.Mark().line + 1) : place_;
  }

  void Leaf(const KeySpec& spec,
            const std::string& spelled,
            const YAML::Node& value,
            const std::string& where) {
    const auto [first, is_new] = in_this_source_.try_emplace(spec.key, Given{spelled, where});
    if (!is_new && (has_lines_ || first->second.spelled != spelled)) {
      return Problem(where, spelled,
                     fmt::format("{} is already set at {}, as {}: leave one out", spec.key,
                                 first->second.where, first->second.spelled));
    }
    if (spelled != spec.key) {
      loaded_->notices.push_back(
          fmt::format("{}: {} is verl's name for {}", where, spelled, spec.key));
    }
    const absl::Status set = SetValue(spec, value, ParentOf(spec.key, &loaded_->config));
    if (!set.ok()) return Problem(where, spelled, std::string(set.message()));
    if (value.IsNull()) {
      loaded_->origins.erase(spec.key);
    } else {
      loaded_->origins[spec.key] = where;
    }
  }

  struct Given {
    std::string spelled, where;
  };

  LoadedConfig* loaded_;
  std::string place_;
  bool has_lines_ = false;
  std::map<std::string, Given> in_this_source_;  // by key; of --set the last counts
  std::vector<std::string> problems_;
};

// Where a file says which other it goes on from.
struct Base {
  std::string path;   // empty: nowhere
  std::string place;  // "a.yaml:3: base"
};

// Of `root`, read from `path`.
absl::StatusOr<Base> BaseOf(const YAML::Node& root, const std::string& path) {
  Base base;
  for (const auto& item : root) {
    if (!item.first.IsScalar() || item.first.Scalar() != kBaseKey) continue;
    const std::string place = fmt::format("{}:{}: {}", path, item.first.Mark().line + 1, kBaseKey);
    if (!base.place.empty()) {
      return InvalidArgument("{}: a file goes on from one other, and {} names one already", place,
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

// `open`: the files whose base this is, directly or not.
absl::Status ApplyFile(const std::string& path, std::vector<std::string> open, Loader* loader) {
  if (std::find(open.begin(), open.end(), path) != open.end()) {
    return InvalidArgument("the files go on from each other in a circle: {}",
                           fmt::join(open, ", "));
  }
  TANDEM_ASSIGN_OR_RETURN(const YAML::Node root, ReadYamlFile(path));
  if (root.IsNull()) return absl::OkStatus();
  if (!root.IsMap()) {
    return InvalidArgument("{}:1: a config file is a mapping of sections", path);
  }
  TANDEM_ASSIGN_OR_RETURN(const Base base, BaseOf(root, path));
  open.push_back(path);
  if (!base.path.empty()) {
    TANDEM_RETURN_IF_ERROR(Annotate(ApplyFile(base.path, open, loader), base.place));
  }
  loader->Source(path, /*has_lines=*/true);
  loader->Map("", root);
  return absl::OkStatus();
}

void ApplyOverride(const std::string& text, Loader* loader) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return loader->Problem("--set", text, "an override is written key=value");
  }
  const std::string key = text.substr(0, equals);
  if (key[0] == '+' || key[0] == '~') {  // Hydra's signs
    return loader->Problem("--set", text,
                           fmt::format("every key is there already, and null gives it its default "
                                       "again: write it without {}",
                                       key.substr(0, key.find_first_not_of("+~"))));
  }
  const auto value = ParseYamlValue(text.substr(equals + 1));
  if (!value.ok()) {
    return loader->Problem("--set", key, std::string(value.status().message()));
  }
  loader->Entry(key, *value, "--set");
}

}  // namespace

absl::StatusOr<LoadedConfig> LoadConfig(const std::string& yaml_path,
                                        const std::vector<std::string>& overrides) {
  LoadedConfig loaded;
  Loader loader(&loaded);
  if (!yaml_path.empty()) TANDEM_RETURN_IF_ERROR(ApplyFile(yaml_path, {}, &loader));
  loader.Source("--set", /*has_lines=*/false);
  for (const std::string& text : overrides) ApplyOverride(text, &loader);
  TANDEM_RETURN_IF_ERROR(loader.status());
  ResolveConfig(&loaded.config, loaded.origins);
  const std::vector<std::string> unused = UnusedKeyNotices(loaded.config, loaded.origins);
  loaded.notices.insert(loaded.notices.end(), unused.begin(), unused.end());
  return loaded;
}

}  // namespace tandem
