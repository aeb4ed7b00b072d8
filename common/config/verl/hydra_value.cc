#include "common/config/verl/hydra_value.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <string_view>

#include <absl/strings/numbers.h>
#include <fmt/format.h>

#include "common/base/status.h"

namespace tandem {
namespace {

// Deeper values are refused: each level is a call.
constexpr int kMaxHydraDepth = 64;

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

// Recursive descent over one value. A failed parse leaves a reason.
class HydraReader {
 public:
  explicit HydraReader(std::string_view text) : text_(text) {}

  absl::StatusOr<std::string> Read() {
    TANDEM_ASSIGN_OR_RETURN(std::string value, Value(0));
    if (SkipSpaces(); at_ < text_.size()) {
      return Fail(fmt::format("\"{}\" is left over", text_.substr(at_)));
    }
    return value;
  }

 private:
  absl::Status Fail(const std::string& what) const {
    return InvalidArgument("no value of Hydra's grammar either: {}", what);
  }
  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void SkipSpaces() {
    while (Peek() == ' ' || Peek() == '\t' || Peek() == '\n') ++at_;
  }
  bool Take(char c) {
    SkipSpaces();
    if (Peek() != c) return false;
    ++at_;
    return true;
  }

  absl::StatusOr<std::string> Value(int depth) {
    if (depth > kMaxHydraDepth)
      return Fail(fmt::format("it is deeper than {} levels", kMaxHydraDepth));
    SkipSpaces();
    if (Peek() == '[') return List(depth);
    if (Peek() == '{') return Mapping(depth);
    if (Peek() == '\'' || Peek() == '"') {
      TANDEM_ASSIGN_OR_RETURN(const std::string text, QuotedText());
      return Quoted(text);
    }
    return Plain(depth);
  }

  absl::StatusOr<std::string> List(int depth) {
    ++at_;
    std::string out = "[";
    if (Take(']')) return out + "]";
    while (true) {
      TANDEM_ASSIGN_OR_RETURN(const std::string entry, Value(depth + 1));
      out += entry;
      if (Take(']')) return out + "]";
      if (!Take(',')) return Fail("a list lacks , or ]");
      out += ", ";
    }
  }

  absl::StatusOr<std::string> Mapping(int depth) {
    ++at_;
    std::string out = "{";
    if (Take('}')) return out + "}";
    while (true) {
      SkipSpaces();
      std::string key;
      if (Peek() == '\'' || Peek() == '"') {
        TANDEM_ASSIGN_OR_RETURN(key, QuotedText());
      } else {
        key = PlainText(":");
      }
      if (!Take(':')) return Fail("an entry of a mapping is written key:value");
      TANDEM_ASSIGN_OR_RETURN(const std::string value, Value(depth + 1));
      out += fmt::format("{}: {}", Quoted(key), value);
      if (Take('}')) return out + "}";
      if (!Take(',')) return Fail("a mapping lacks , or }");
      out += ", ";
    }
  }

  // Within quotes a backslash escapes the quote and itself.
  absl::StatusOr<std::string> QuotedText() {
    const char quote = text_[at_++];
    std::string out;
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == quote) {
        ++at_;
        return out;
      }
      const bool escapes = text_[at_] == '\\' && at_ + 1 < text_.size() &&
                           (text_[at_ + 1] == quote || text_[at_ + 1] == '\\');
      if (escapes) ++at_;
      out += text_[at_];
    }
    return Fail("a quote is not closed");
  }

  // Up to one of , ] } ( ) and `more`, without spaces at the end.
  std::string PlainText(std::string_view more) {
    std::string out;
    size_t kept = 0;  // the length without spaces at the end
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\\' && at_ + 1 < text_.size() &&
          std::string_view("\\()[]{}:=, \t").find(text_[at_ + 1]) != std::string_view::npos) {
        out += text_[++at_];
        kept = out.size();
        continue;
      }
      if (std::string_view(",]}()").find(c) != std::string_view::npos ||
          more.find(c) != std::string_view::npos) {
        break;
      }
      out += c;
      if (c != ' ' && c != '\t') kept = out.size();
    }
    out.resize(kept);
    return out;
  }

  absl::StatusOr<std::string> Plain(int depth) {
    const size_t start = at_;
    const std::string word = PlainText("");
    if (Peek() == '(') return Call(word, depth);
    if (word.empty()) return Fail("a value is missing");
    const bool escaped =
        std::string_view(text_).substr(start, at_ - start).find('\\') != std::string_view::npos;
    const bool plain = std::all_of(word.begin(), word.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
             std::string_view("_.+-").find(c) != std::string_view::npos;
    });
    return plain && !escaped ? word : Quoted(word);
  }

  // int(3.0), str(7): the casts of one value.
  absl::StatusOr<std::string> Call(const std::string& name, int depth) {
    constexpr std::array<std::string_view, 4> kCasts = {"int", "float", "str", "bool"};
    if (std::find(kCasts.begin(), kCasts.end(), name) == kCasts.end()) {
      return Fail(
          fmt::format("{}() is none of int(), float(), str() and bool(); a sweep over values "
                      "is one run for each",
                      name));
    }
    ++at_;
    TANDEM_ASSIGN_OR_RETURN(std::string value, Value(depth + 1));
    if (!Take(')')) return Fail("a call lacks )");
    if (name == "str") return value.starts_with('"') ? value : Quoted(value);
    if (value.starts_with('"')) value = value.substr(1, value.size() - 2);
    double number = 0;
    if (name == "int" && absl::SimpleAtod(value, &number) && std::abs(number) < 9e15) {
      return fmt::format("{}", static_cast<int64_t>(number));
    }
    return value;
  }

  const std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

absl::StatusOr<HydraOverride> SplitHydraOverride(const std::string& text) {
  const size_t begin = text.find_first_not_of("+~");
  const std::string prefix = text.substr(0, begin);
  if (begin == std::string::npos ||
      (prefix != "" && prefix != "+" && prefix != "++" && prefix != "~")) {
    return InvalidArgument("an override is written key=value");
  }
  const size_t equals = text.find('=', begin);
  HydraOverride split{
      .key = text.substr(begin, equals == std::string::npos ? equals : equals - begin)};
  if (split.key.empty() || (prefix != "~" && equals == std::string::npos)) {
    return InvalidArgument("an override is written key=value");
  }
  if (split.key.find_first_of("@/") != std::string::npos) {
    return InvalidArgument(
        "it chooses a file of one of Hydra's config groups, which are not read; give the keys of "
        "that file that differ from verl's defaults");
  }
  if (prefix != "~") split.value = text.substr(equals + 1);
  return split;
}

absl::StatusOr<std::string> HydraValueToYaml(const std::string& text) {
  return HydraReader(text).Read();
}

}  // namespace tandem
