#include <algorithm>

#include <yaml-cpp/yaml.h>

#include "common/config/config.h"
#include "common/config/schema.h"
#include "common/config/yaml_file.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

// The node at a dotted path, undefined where there is none.
YAML::Node Find(const YAML::Node& root, const std::string& key) {
  YAML::Node node = YAML::Clone(root);
  size_t begin = 0;
  while (begin <= key.size()) {
    const size_t end = std::min(key.find('.', begin), key.size());
    if (!node.IsMap()) return YAML::Node(YAML::NodeType::Undefined);
    const YAML::Node inner = node[key.substr(begin, end - begin)];
    if (!inner.IsDefined()) return YAML::Node(YAML::NodeType::Undefined);
    node.reset(inner);
    begin = end + 1;
  }
  return node;
}

}  // namespace

absl::StatusOr<std::vector<ConfigChange>> DiffConfig(const std::string& before,
                                                     const v1::Config& now) {
  absl::StatusOr<YAML::Node> old_root = ParseYamlValue(before);
  if (!old_root.ok()) return old_root.status();
  absl::StatusOr<YAML::Node> new_root = ParseYamlValue(ConfigToYaml(now));
  if (!new_root.ok()) return new_root.status();
  std::vector<ConfigChange> changes;
  for (const KeySpec& spec : ConfigSchema()) {
    if (spec.section || spec.key.find('[') != std::string::npos) continue;
    const YAML::Node old_value = Find(*old_root, spec.key), new_value = Find(*new_root, spec.key);
    if (!old_value.IsDefined() || !new_value.IsDefined()) continue;
    ConfigChange change{
        .key = spec.key, .before = YamlToJson(old_value), .now = YamlToJson(new_value)};
    if (change.before != change.now) changes.push_back(std::move(change));
  }
  return changes;
}

}  // namespace tandem
