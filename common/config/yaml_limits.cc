#include "common/config/yaml_limits.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include "common/base/status.h"

namespace tandem {
namespace {

// As JSON's writer judges it.
bool IsUtf8(const std::string& text) {
  try {
    (void)nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

// Thrown through the parser, which offers no other way out of it.
struct YamlLimitPassed {
  absl::Status status;
};

// Counts nodes and levels of a document, aliases as what they name.
class YamlLimits : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { Leaf(mark, anchor); }
  void OnScalar(const YAML::Mark& mark,
                const std::string&,
                YAML::anchor_t anchor,
                const std::string& value) override {
    if (!IsUtf8(value)) Refuse(mark, "a value or key is not UTF-8");
    Leaf(mark, anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto named = anchors_.find(anchor);
    if (named == anchors_.end()) Refuse(mark, "an alias is inside the value that it names");
    Count(mark, named->second);
  }
  void OnSequenceStart(const YAML::Mark& mark,
                       const std::string&,
                       YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Begin(mark, anchor);
  }
  void OnSequenceEnd() override { End(); }
  void OnMapStart(const YAML::Mark& mark,
                  const std::string&,
                  YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Begin(mark, anchor);
  }
  void OnMapEnd() override { End(); }

 private:
  struct Extent {
    size_t nodes = 1;
    int levels = 0;  // of lists and mappings in each other
  };
  struct Open {
    Extent extent;
    YAML::anchor_t anchor;
    YAML::Mark mark;
  };

  [[noreturn]] static void Refuse(const YAML::Mark& mark, const std::string& why) {
    throw YamlLimitPassed{InvalidArgument("{}: {}; write it without", mark.line + 1, why)};
  }

  void Leaf(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) anchors_[anchor] = Extent{};
    Count(mark, Extent{});
  }

  void Begin(const YAML::Mark& mark, YAML::anchor_t anchor) {
    open_.push_back({.extent = {.nodes = 1, .levels = 1}, .anchor = anchor, .mark = mark});
    CheckLevels(mark, static_cast<int>(open_.size()));
  }

  void End() {
    const Open done = open_.back();
    open_.pop_back();
    if (done.anchor != YAML::NullAnchor) anchors_[done.anchor] = done.extent;
    Count(done.mark, done.extent);
  }

  // Counts a node, with its extent, in the innermost open list or mapping.
  void Count(const YAML::Mark& mark, const Extent& extent) {
    CheckLevels(mark, static_cast<int>(open_.size()) + extent.levels);
    if (open_.empty()) return;
    Extent& outer = open_.back().extent;
    outer.levels = std::max(outer.levels, extent.levels + 1);
    outer.nodes += extent.nodes;
    if (outer.nodes > kMaxYamlNodes) {
      Refuse(mark, fmt::format("with every alias replaced by what it names there are more than {} "
                               "values",
                               kMaxYamlNodes));
    }
  }

  static void CheckLevels(const YAML::Mark& mark, int levels) {
    if (levels > kMaxYamlNesting) {
      Refuse(mark, fmt::format("lists and mappings lie in each other more than {} levels deep",
                               kMaxYamlNesting));
    }
  }

  std::vector<Open> open_;
  std::map<YAML::anchor_t, Extent> anchors_;  // of what has ended
};

}  // namespace

absl::Status CheckYamlLimits(const std::string& text) {
  if (text.size() > kMaxYamlBytes) {
    return InvalidArgument("1: {} bytes are too many for a configuration, {} are allowed",
                           text.size(), kMaxYamlBytes);
  }
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    YamlLimits limits;
    parser.HandleNextDocument(limits);
  } catch (const YamlLimitPassed& passed) {
    return passed.status;
  } catch (const YAML::Exception&) {
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace tandem
