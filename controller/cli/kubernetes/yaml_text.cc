#include "controller/cli/kubernetes/yaml_text.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <absl/strings/ascii.h>
#include <absl/strings/str_split.h>
#include <absl/strings/string_view.h>
#include <nlohmann/json.hpp>

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

// Words that YAML 1.1 or 1.2 reads as a truth value or as nothing.
bool IsReserved(std::string_view text) {
  static constexpr std::array<std::string_view, 9> kWords = {"true", "false", "yes", "no", "on",
                                                             "off",  "null",  "y",   "n"};
  return std::find(kWords.begin(), kWords.end(), absl::AsciiStrToLower(std::string(text))) !=
         kWords.end();
}

// Begins with a letter or a slash, so that it is no number, and has nothing that means something in
// YAML.
bool MayBePlain(std::string_view text) {
  if (text.empty() || IsReserved(text)) return false;
  if (!absl::ascii_isalpha(static_cast<unsigned char>(text[0])) && text[0] != '/') return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           std::string_view("-_./").find(c) != std::string_view::npos;
  });
}

// A literal block keeps a text as it is where the first line is not indented, as that would set the
// indentation of all, and where there are no control characters.
bool MayBeLiteral(std::string_view text) {
  const size_t first_break = text.find('\n');
  if (first_break == std::string_view::npos || first_break == 0 || text[0] == ' ') return false;
  if (text.ends_with("\n\n")) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return c == '\n' || !absl::ascii_iscntrl(static_cast<unsigned char>(c));
  });
}

std::string Literal(std::string_view text, const std::string& indent) {
  const bool ends_with_break = text.ends_with('\n');
  std::string out = ends_with_break ? "|\n" : "|-\n";
  if (ends_with_break) text.remove_suffix(1);
  const std::string lines(text);
  for (const absl::string_view line : absl::StrSplit(lines, absl::ByChar('\n'))) {
    if (!line.empty()) out += indent + std::string(line);
    out += "\n";
  }
  return out;
}

std::string Scalar(const Json& value, const std::string& indent) {
  if (!value.is_string()) return value.dump() + "\n";
  const std::string& text = value.get_ref<const std::string&>();
  if (MayBePlain(text)) return text + "\n";
  return MayBeLiteral(text) ? Literal(text, indent) : value.dump() + "\n";
}

bool HasLines(const Json& value) { return value.is_structured() && !value.empty(); }

std::string Block(const Json& value, const std::string& indent);

std::string Entry(const std::string& key, const Json& value, const std::string& indent) {
  const std::string name = Scalar(key, "");
  const std::string begin = name.substr(0, name.size() - 1) + ":";
  if (!HasLines(value)) return begin + " " + Scalar(value, indent + "  ");
  // A list may stand as deep as its key.
  const std::string deeper = value.is_array() ? indent : indent + "  ";
  return begin + "\n" + Block(value, deeper);
}

std::string Block(const Json& value, const std::string& indent) {
  std::string out;
  if (value.is_array()) {
    for (const Json& item : value) {
      const std::string lines =
          HasLines(item) ? Block(item, indent + "  ") : indent + "  " + Scalar(item, indent + "  ");
      out += indent + "- " + lines.substr(indent.size() + 2);
    }
    return out;
  }
  for (const auto& [key, item] : value.items()) out += indent + Entry(key, item, indent);
  return out;
}

}  // namespace

std::string YamlText(const Json& document) {
  return HasLines(document) ? Block(document, "") : Scalar(document, "");
}

}  // namespace tandem
