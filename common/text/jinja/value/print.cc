#include "common/text/jinja/value/print.h"

#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "common/text/jinja/value/compare.h"
#include "common/text/unicode/regex.h"
#include "common/text/unicode/utf8.h"

namespace tandem::jinja {
namespace {

// Python's str.isprintable for one character.
bool IsPrintable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  static const auto* const kUnprintable =
      new absl::StatusOr<Regex>(Regex::Compile(R"([\p{C}\p{Z}])"));
  std::string text;
  AppendUtf8(c, text);
  const auto matches = (*kUnprintable)->FindAll(text);
  return matches.ok() && matches->empty();
}

std::string QuotedText(const std::string& text) {
  const bool doubles = text.find('\'') != std::string::npos && text.find('"') == std::string::npos;
  const char quote = doubles ? '"' : '\'';
  std::string out(1, quote);
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = NextCodePoint(text, pos);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (IsPrintable(c)) {
      AppendUtf8(c, out);
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    }
  }
  return out + quote;
}

std::string JoinRepr(const Values& items) {
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) out += (i > 0 ? ", " : "") + Repr(items[i]);
  return out;
}

std::string SequenceText(const Sequence& sequence) {
  const std::string inside = JoinRepr(sequence.items);
  switch (sequence.type) {
    case Sequence::Type::kList:
      return "[" + inside + "]";
    case Sequence::Type::kTuple:
    case Sequence::Type::kGroup:
      return sequence.items.size() == 1 ? "(" + inside + ",)" : "(" + inside + ")";
    case Sequence::Type::kRange: {
      // Only the items are kept; a range of step 1 prints as Python does.
      const int64_t first = sequence.items.empty() ? 0 : sequence.items.front().integer();
      return fmt::format("range({}, {})", first,
                         first + static_cast<int64_t>(sequence.items.size()));
    }
    case Sequence::Type::kKeysView:
      return "dict_keys([" + inside + "])";
    case Sequence::Type::kValuesView:
      return "dict_values([" + inside + "])";
    case Sequence::Type::kItemsView:
      return "dict_items([" + inside + "])";
  }
  return inside;
}

std::string MappingText(const Mapping& mapping) {
  std::string out = "{";
  for (const auto& [key, value] : mapping.items) {
    if (out.size() > 1) out += ", ";
    out += Repr(key) + ": " + Repr(value);
  }
  return out + "}";
}

}  // namespace

std::string FloatText(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  char buffer[64];
  auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), number, std::chars_format::scientific).ptr;
  std::string scientific(buffer, end);  // d[.ddd]e±XX
  const size_t e = scientific.find('e');
  const int exponent = std::stoi(scientific.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return scientific;
  end = std::to_chars(buffer, buffer + sizeof(buffer), number, std::chars_format::fixed).ptr;
  std::string fixed(buffer, end);
  if (fixed.find('.') == std::string::npos) fixed += ".0";
  return fixed;
}

std::string ToText(const Value& value) {
  if (value.is_string()) return value.text();
  if (value.is_undefined()) return "";
  return Repr(value);
}

std::string Repr(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return value.boolean() ? "True" : "False";
    case Kind::kInt:
      return std::to_string(value.integer());
    case Kind::kFloat:
      return FloatText(value.floating());
    case Kind::kString:
      return QuotedText(value.text());
    case Kind::kSequence:
      return SequenceText(value.sequence());
    case Kind::kMapping:
      return MappingText(value.mapping());
    case Kind::kIterator:
      return "<generator object>";
    case Kind::kObject:
      return value.object().Print();
  }
  return "";
}

}  // namespace tandem::jinja
