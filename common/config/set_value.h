// One YAML value into one field, with every check that needs no other key.
#pragma once

#include <absl/status/status.h>
#include <google/protobuf/message.h>
#include <yaml-cpp/yaml.h>

#include "common/config/schema.h"

namespace tandem {

// Sets `spec`'s field of `parent`, the message that contains it. null restores the default; a
// single value is taken for a list of one. The error says what was expected and what was found.
absl::Status SetValue(const KeySpec& spec,
                      const YAML::Node& node,
                      google::protobuf::Message* parent);

// The message that contains `key`'s field ("a.b.c" -> config.a.b), created where missing.
google::protobuf::Message* ParentOf(const std::string& key, v1::Config* config);

}  // namespace tandem
