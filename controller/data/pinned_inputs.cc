#include "controller/data/pinned_inputs.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

namespace tandem {
namespace {

constexpr char kValidation[] = "data.val_files";

struct ThenAndNow {
  std::vector<PinnedInput> then;
  std::vector<PinnedInput> now;
};

std::map<std::string, ThenAndNow> ByKey(const std::vector<PinnedInput>& then,
                                        const std::vector<PinnedInput>& now) {
  std::map<std::string, ThenAndNow> by_key;
  for (const PinnedInput& input : then) by_key[input.key].then.push_back(input);
  for (const PinnedInput& input : now) by_key[input.key].now.push_back(input);
  return by_key;
}

std::string Content(const PinnedInput& input) {
  return fmt::format("{} bytes, digest {}", input.bytes, input.digest);
}

void AddDifferences(const std::string& key,
                    const ThenAndNow& inputs,
                    std::vector<std::string>* lines) {
  const auto& [then, now] = inputs;
  if (key == kValidation && (then.empty() || now.empty())) return;
  for (size_t i = 0; i < std::max(then.size(), now.size()); ++i) {
    if (i >= now.size()) {
      lines->push_back(fmt::format("{}: {} ({}) was used then, is missing now", key, then[i].path,
                                   Content(then[i])));
    } else if (i >= then.size()) {
      lines->push_back(
          fmt::format("{}: {} ({}) is used now, was not then", key, now[i].path, Content(now[i])));
    } else if (then[i].digest != now[i].digest) {
      lines->push_back(fmt::format(
          "{}: {} has another content: then {}{}, now {}", key, now[i].path, Content(then[i]),
          then[i].path == now[i].path ? "" : " in " + then[i].path, Content(now[i])));
    }
  }
}

std::string KeyAlone(const std::string& key) { return key.substr(0, key.find(' ')); }

}  // namespace

std::vector<std::string> ChangedInputs(const std::vector<PinnedInput>& then,
                                       const std::vector<PinnedInput>& now) {
  std::vector<std::string> lines;
  for (const auto& [key, inputs] : ByKey(then, now)) AddDifferences(key, inputs, &lines);
  return lines;
}

std::set<std::string> KeysOfEqualInputs(const std::vector<PinnedInput>& then,
                                        const std::vector<PinnedInput>& now) {
  std::set<std::string> equal;
  std::set<std::string> changed;
  for (const auto& [key, inputs] : ByKey(then, now)) {
    std::vector<std::string> lines;
    AddDifferences(key, inputs, &lines);
    (lines.empty() && !inputs.then.empty() ? equal : changed).insert(KeyAlone(key));
  }
  for (const std::string& key : changed) equal.erase(key);
  return equal;
}

}  // namespace tandem
