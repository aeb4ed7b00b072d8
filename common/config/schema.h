// The schema as a table, read once from the descriptors of v1::Config.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tandem/v1/config.pb.h"

namespace tandem {

struct KeySpec {
  std::string key;  // "rollout.val_kwargs.n"; fields of list entries: "reward.terms[].weight"
  const google::protobuf::FieldDescriptor* field = nullptr;
  v1::KeyInfo info;
  bool section = false;  // a singular message: holds keys, not a value
};

// All keys in the order of the schema, each section before its keys. Never changes.
const std::vector<KeySpec>& ConfigSchema();

// nullptr if `key` is not the canonical name of a key.
const KeySpec* FindKey(const std::string& key);

// The canonical name of `key`, which may be an alias or may use an alias of a section above it
// (actor_rollout_ref.rollout.n -> rollout.n). A key without alias, known or not, is returned as is.
std::string CanonicalKey(const std::string& key);

// Whether `key` is a proper prefix of an alias, such as actor_rollout_ref.
bool IsAliasBeginning(const std::string& key);

// The valid key that is most similar to `key` by edit distance, of the whole key or its last part;
// "" if none is similar.
std::string NearestKey(const std::string& key);

// The end of a message about the unknown key `key`: the nearest key, or where all keys are listed.
std::string Suggestion(const std::string& key);

// The same from NearestKey of the unknown key.
std::string SuggestionOf(const std::string& nearest);

// "did you mean KEY?" with the nearest of `keys` by its last word; "": none is near.
std::string SuggestionAmong(const std::string& key, const std::vector<std::string>& keys);

// "whole number", "list of numbers", "text" ...
std::string TypeName(const KeySpec& spec);

// The default as YAML; "" for required keys and sections.
std::string DefaultText(const KeySpec& spec);

// The element's message descriptor for `repeated message` keys, else nullptr.
const google::protobuf::Descriptor* EntryType(const KeySpec& spec);

}  // namespace tandem
