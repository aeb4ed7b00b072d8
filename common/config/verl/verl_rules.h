// verl's keys that this schema does not have: what each asks for, and whether it can be had here.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// A rule for a key, or for all keys of a section that have no rule of their own.
struct VerlRule {
  std::string_view key;  // as CanonicalKey spells it: "rollout.name", not "actor_rollout_ref..."
  // The values that ask for what is done here anyway, or only tune an engine that this system does
  // not have: "*" for all, else separated by "|", in lower case. null is always one of them, as it
  // asks for nothing. Everything else would change the result, and is refused.
  std::string_view accepts;
  std::string_view reason;  // why an accepted value has no effect, or why the key is refused
  std::string_view remedy;  // what to do instead, for a refused value; "" where none is refused
};

// All rules, in the order of the table.
std::span<const VerlRule> VerlRules();

// The rule for `key`, the canonical name of a key that the schema does not have: its own, or that
// of the innermost section around it that has one. nullptr: this is no key of verl's that we know,
// or it is in a section where only known keys are accepted, such as the engines' own arguments.
const VerlRule* FindVerlRule(std::string_view key);

// The known keys of such a section around `key`, for a suggestion; empty: there is none.
std::vector<std::string> VerlKeysBeside(std::string_view key);

// Whether a rule is about a key inside `section`, a canonical name, or about the section itself.
bool HasVerlRules(std::string_view section);

// Whether `value`, the text of a scalar or "{}" and "[]" for what is empty, is accepted.
bool VerlRuleAccepts(const VerlRule& rule, std::string_view value);

// A value of a key that the schema has and which verl spells otherwise.
struct VerlValue {
  std::string_view key;
  std::string_view value;
  std::string_view instead;  // "": the entry is left out of its list
  std::string_view reason;
};

std::span<const VerlValue> VerlValues();

// nullptr: `value` is read as it is.
const VerlValue* FindVerlValue(std::string_view key, std::string_view value);

}  // namespace tandem
