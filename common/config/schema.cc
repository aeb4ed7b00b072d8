#include "common/config/schema.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tandem {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// The names in a table of deploy/cmake/TandemRegistry.cmake, which are choices of a key.
std::vector<std::string_view> RegisteredNames(std::string_view registry) {
#define TANDEM_REGISTERED(symbol, name) name,
  if (registry == "policy_losses") {
    return {
#include "policy_losses.inc"
    };
  }
  if (registry == "advantage_estimators") {
    return {
#include "advantage_estimators.inc"
    };
  }
  if (registry == "reward_functions") {
    return {
#include "reward_functions.inc"
    };
  }
#undef TANDEM_REGISTERED
  return {};
}

void Collect(const Descriptor& message, const std::string& prefix, std::vector<KeySpec>* out) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor* field = message.field(i);
    KeySpec spec;
    spec.key = prefix + field->name();
    spec.field = field;
    spec.info = field->options().GetExtension(v1::key);
    for (const std::string_view name : RegisteredNames(spec.info.registry())) {
      spec.info.add_choices(std::string(name));
    }
    spec.section = field->message_type() != nullptr && !field->is_repeated();
    out->push_back(spec);
    if (field->message_type() != nullptr) {
      Collect(*field->message_type(), spec.key + (spec.section ? "." : "[]."), out);
    }
  }
}

// A word and which letters it has, a bit for each (of 64, which others share).
struct Word {
  explicit Word(std::string_view its_text) : text(its_text) {
    for (const char c : text) letters |= uint64_t{1} << (static_cast<unsigned char>(c) % 64);
  }
  std::string_view text;
  uint64_t letters = 0;
};

// No more than the edit distance: one edit takes away one letter at most, and adds one at most.
size_t LeastDistance(const Word& a, const Word& b) {
  const size_t lengths =
      std::max(a.text.size(), b.text.size()) - std::min(a.text.size(), b.text.size());
  const int letters =
      std::max(std::popcount(a.letters & ~b.letters), std::popcount(b.letters & ~a.letters));
  return std::max(lengths, static_cast<size_t>(letters));
}

// Levenshtein distance, or `limit` + 1 where it is larger than `limit`. Row i has the distances of
// the first i letters of `first` from beginnings of `second`: those further than `limit` from the
// diagonal are larger, and no distance is less than the least one of a row.
size_t EditDistance(const Word& first, const Word& second, size_t limit) {
  if (LeastDistance(first, second) > limit) return limit + 1;
  const std::string_view a = first.text, b = second.text;
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    const size_t begin = i > limit ? i - limit : 1, end = std::min(b.size(), i + limit);
    size_t diagonal = row[begin - 1];
    size_t left = row[begin - 1] = i - (begin - 1);
    size_t least = left;
    for (size_t j = begin; j <= end; ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      left = row[j] = std::min(replaced, std::min(diagonal, left) + 1);
      least = std::min(least, left);
    }
    if (least > limit) return limit + 1;
  }
  return std::min(row[b.size()], limit + 1);
}

std::string_view LastPart(std::string_view key) {
  const size_t dot = key.rfind('.');
  return dot == std::string_view::npos ? key : key.substr(dot + 1);
}

std::string ScalarType(const KeySpec& spec) {
  switch (spec.field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
      return "whole number";
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return "number";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return "mapping";
    default:
      return spec.info.json() ? "JSON object" : spec.info.path() ? "path" : "text";
  }
}

}  // namespace

const std::vector<KeySpec>& ConfigSchema() {
  static const std::vector<KeySpec>* const schema = [] {
    auto* all = new std::vector<KeySpec>;
    Collect(*v1::Config::descriptor(), "", all);
    return all;
  }();
  return *schema;
}

namespace {

// What an unknown key is compared with.
struct KeyWords {
  Word whole;
  Word last;
  bool of_entry;  // of a list
};

// The schema by names: a config is read by thousands of look-ups.
struct SchemaIndex {
  std::unordered_map<std::string, const KeySpec*> keys;
  std::unordered_map<std::string, const KeySpec*> aliases;
  std::unordered_set<std::string> alias_beginnings;  // "a" and "a.b" of an alias "a.b.c"
  std::vector<KeyWords> words;                       // in the order of the schema
};

SchemaIndex MakeIndex() {
  SchemaIndex index;
  for (const KeySpec& spec : ConfigSchema()) {
    index.keys.emplace(spec.key, &spec);
    index.words.push_back({.whole = Word(spec.key),
                           .last = Word(LastPart(spec.key)),
                           .of_entry = spec.key.find("[]") != std::string::npos});
    for (const std::string& alias : spec.info.aliases()) {
      index.aliases.emplace(alias, &spec);
      for (size_t dot = alias.find('.'); dot != std::string::npos; dot = alias.find('.', dot + 1)) {
        index.alias_beginnings.insert(alias.substr(0, dot));
      }
    }
  }
  return index;
}

const SchemaIndex& Index() {
  static const SchemaIndex* const index = new SchemaIndex(MakeIndex());
  return *index;
}

}  // namespace

const KeySpec* FindKey(const std::string& key) {
  const auto found = Index().keys.find(key);
  return found == Index().keys.end() ? nullptr : found->second;
}

std::string CanonicalKey(const std::string& key) {
  // The longest alias wins: a key's own before its section's.
  size_t length = key.size();
  while (true) {
    const auto found = Index().aliases.find(key.substr(0, length));
    if (found != Index().aliases.end() && (length == key.size() || found->second->section)) {
      return found->second->key + key.substr(length);
    }
    const size_t dot = length == 0 ? std::string::npos : key.rfind('.', length - 1);
    if (dot == std::string::npos) return key;
    length = dot;
  }
}

bool IsAliasBeginning(const std::string& key) { return Index().alias_beginnings.contains(key); }

std::string NearestKey(const std::string& key) {
  const std::string wanted = CanonicalKey(key);
  const Word whole(wanted), last(LastPart(wanted));
  const bool of_entry = wanted.find('[') != std::string::npos;
  // Further away it is another word, and naming it would only mislead.
  const size_t most = std::max<size_t>(2, wanted.size() / 6), most_of_last = last.text.size() / 4;
  // Beyond these a distance decides nothing: a key that is near by the other one is nearer by it.
  const size_t limit = std::max(most, 3 * most_of_last);
  const size_t limit_of_last = std::max(most_of_last, most / 3);
  std::string_view best;
  size_t best_distance = std::numeric_limits<size_t>::max();
  for (const KeyWords& words : Index().words) {
    if (words.of_entry && !of_entry) continue;
    const size_t of_whole = EditDistance(whole, words.whole, limit);
    const size_t of_last = EditDistance(last, words.last, limit_of_last);
    const bool near = of_whole <= most || of_last <= most_of_last;
    const size_t distance = std::min(of_whole, 1 + 3 * of_last);
    if (near && distance < best_distance) {
      best = words.whole.text;
      best_distance = distance;
    }
  }
  return std::string(best);
}

std::string SuggestionOf(const std::string& nearest) {
  return nearest.empty() ? "docs/reference/config.md has all keys"
                         : "did you mean " + nearest + "?";
}

std::string Suggestion(const std::string& key) { return SuggestionOf(NearestKey(key)); }

std::string SuggestionAmong(const std::string& key, const std::vector<std::string>& keys) {
  const Word last(LastPart(key));
  std::string best;
  size_t best_distance = last.text.size() / 4 + 1;  // further away it is another word
  for (const std::string& candidate : keys) {
    const size_t distance = EditDistance(last, Word(LastPart(candidate)), best_distance - 1);
    if (distance >= best_distance) continue;
    best = candidate;
    best_distance = distance;
    if (distance == 0) break;
  }
  return best.empty() ? "" : "did you mean " + best + "?";
}

std::string TypeName(const KeySpec& spec) {
  if (spec.section) return "section";
  const std::string scalar = ScalarType(spec);
  return spec.field->is_repeated() ? "list of: " + scalar : scalar;
}

std::string DefaultText(const KeySpec& spec) {
  if (spec.section || spec.info.required()) return "";
  if (spec.field->is_repeated()) {
    return fmt::format("[{}]", fmt::join(spec.info.list_default(), ", "));
  }
  switch (spec.field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
      return fmt::format("{}", spec.field->default_value_int64());
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return fmt::format("{}", spec.field->default_value_double());
    case FieldDescriptor::CPPTYPE_BOOL:
      return spec.field->default_value_bool() ? "true" : "false";
    default: {
      const std::string& text = spec.field->default_value_string();
      return text.empty() ? "\"\"" : text;
    }
  }
}

const Descriptor* EntryType(const KeySpec& spec) {
  return spec.field->is_repeated() ? spec.field->message_type() : nullptr;
}

}  // namespace tandem
