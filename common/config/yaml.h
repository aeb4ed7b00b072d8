// Wraps yaml-cpp: its exceptions do not leave these functions.
#pragma once

#include <string>

#include <absl/status/statusor.h>

namespace YAML {
class Node;
}  // namespace YAML

namespace tandem {

// NotFound: no such file. InvalidArgument: no YAML, with file and line.
absl::StatusOr<YAML::Node> ReadYamlFile(const std::string& path);

// One value, as written after `key=`. Empty text is an empty string, not null.
absl::StatusOr<YAML::Node> ParseYamlValue(const std::string& text);

// `node` as JSON text; scalars without quotes become numbers, booleans and null where they can.
std::string YamlToJson(const YAML::Node& node);

// The JSON object `object` ("" is an empty one) with the entry at the dotted path `entry` set to
// `value`, or taken out for null. InvalidArgument: something on the path is no object.
absl::StatusOr<std::string> WithJsonEntry(const std::string& object,
                                          const std::string& entry,
                                          const YAML::Node& value);

}  // namespace tandem
