// Converts one YAML value to one field, with every check that needs no other key.
#pragma once

#include <string>

#include <absl/status/status.h>
namespace YAML {
class Node;
}  // namespace YAML
namespace google::protobuf {
class Message;
}  // namespace google::protobuf
namespace tandem::v1 {
class Config;
}  // namespace tandem::v1

namespace tandem {

struct KeySpec;

// Sets `spec`'s field of `parent`, the message that contains it. null restores the default; a
// single value counts as a list of one. The error says what was expected and what was found.
absl::Status SetValue(const KeySpec& spec,
                      const YAML::Node& node,
                      google::protobuf::Message* parent);

// The message that contains `key`'s field ("a.b.c" -> config.a.b), created where missing.
google::protobuf::Message* ParentMessage(const std::string& key, v1::Config* config);

}  // namespace tandem
