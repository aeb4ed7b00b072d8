#include "common/text/jinja/value/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "common/base/status.h"
#include "common/text/jinja/value/allowance.h"
#include "common/text/jinja/value/operators.h"
#include "common/text/unicode/properties.h"
#include "common/text/unicode/utf8.h"

namespace tandem::jinja {
namespace {

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

// A part that values share is printed once per occurrence; the allowance of the rendering bounds
// this.
std::string JoinRepr(const Values& items) {
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string item = Repr(items[i]);
    if (!MayGrow(out, item.size() + 16)) break;
    out += (i > 0 ? ", " : "") + item;
  }
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
    const std::string item = Repr(key) + ": " + Repr(value);
    if (!MayGrow(out, item.size() + 16)) break;
    if (out.size() > 1) out += ", ";
    out += item;
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
  // Nesting of lists and mappings is limited, but a namespace inside them can contain them again.
  const DepthScope depth(CurrentAllowance());
  if (depth.too_deep()) return "";
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

namespace {

std::string JsonNumber(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
  return FloatText(number);
}

void AppendEscapedUnit(uint32_t unit, std::string& out) { out += fmt::format("\\u{:04x}", unit); }

std::string JsonText(const std::string& text, bool ensure_ascii) {
  std::string out = "\"";
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = NextCodePoint(text, pos);
    const size_t short_form = std::string_view("\"\\\n\r\t\f\b").find(static_cast<char>(c));
    if (c < 0x80 && c != 0 && short_form != std::string_view::npos) {
      out += '\\';
      out += "\"\\nrtfb"[short_form];
    } else if (c < 0x20 || (ensure_ascii && c >= 0x7F && c < 0x10000)) {
      AppendEscapedUnit(c, out);
    } else if (ensure_ascii && c >= 0x10000) {
      AppendEscapedUnit(0xD800 + ((c - 0x10000) >> 10), out);
      AppendEscapedUnit(0xDC00 + ((c - 0x10000) & 0x3FF), out);
    } else {
      AppendUtf8(c, out);
    }
  }
  return out + "\"";
}

class Dumper {
 public:
  explicit Dumper(const JsonStyle& style) : style_(style) {}

  absl::StatusOr<std::string> Dump(const Value& value, int depth) const {
    if (!MayWork(16)) return CurrentAllowance()->status();
    switch (value.kind()) {
      case Kind::kNone:
        return std::string("null");
      case Kind::kBool:
        return std::string(value.boolean() ? "true" : "false");
      case Kind::kInt:
        return std::to_string(value.integer());
      case Kind::kFloat:
        return JsonNumber(value.floating());
      case Kind::kString:
        return JsonText(value.text(), style_.ensure_ascii);
      case Kind::kMapping:
        return DumpMapping(value.mapping(), depth);
      case Kind::kSequence:
        if (value.is_list() || value.is_tuple()) return DumpItems(value.sequence().items, depth);
        [[fallthrough]];
      default:
        return InvalidArgument("Object of type {} is not JSON serializable", TypeName(value));
    }
  }

 private:
  absl::StatusOr<std::string> DumpItems(const Values& items, int depth) const {
    std::vector<std::string> parts;
    for (const Value& item : items) {
      TANDEM_ASSIGN_OR_RETURN(std::string part, Dump(item, depth + 1));
      parts.push_back(std::move(part));
    }
    return Wrap('[', parts, ']', depth);
  }

  absl::StatusOr<std::string> DumpMapping(const Mapping& mapping, int depth) const {
    auto items = mapping.items;
    if (style_.sort_keys) {
      std::stable_sort(items.begin(), items.end(), [](const auto& a, const auto& b) {
        return Less(a.first, b.first).value_or(false);
      });
    }
    std::vector<std::string> parts;
    for (const auto& [key, item] : items) {
      TANDEM_ASSIGN_OR_RETURN(std::string part, Dump(item, depth + 1));
      TANDEM_ASSIGN_OR_RETURN(const std::string name, KeyText(key));
      if (!MayMakeText(name.size() + style_.key_separator.size() + part.size())) {
        return CurrentAllowance()->status();
      }
      parts.push_back(name + style_.key_separator + part);
    }
    return Wrap('{', parts, '}', depth);
  }

  absl::StatusOr<std::string> KeyText(const Value& key) const {
    if (key.is_string()) return JsonText(key.text(), style_.ensure_ascii);
    if (!key.is_number() && !key.is_none()) {
      return InvalidArgument("keys must be str, int, float, bool or None, not {}", TypeName(key));
    }
    TANDEM_ASSIGN_OR_RETURN(const std::string text, Dump(key, 0));
    return "\"" + text + "\"";
  }

  std::string Wrap(char open, const std::vector<std::string>& parts, char close, int depth) const {
    std::string out(1, open);
    const size_t indents =
        style_.indent ? style_.indent->size() * static_cast<size_t>(depth + 1) : 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (!MayGrow(out, style_.item_separator.size() + indents + parts[i].size())) break;
      if (i > 0) out += style_.item_separator;
      NewLine(out, depth + 1);
      out += parts[i];
    }
    if (!parts.empty()) NewLine(out, depth);
    return out + close;
  }

  void NewLine(std::string& out, int depth) const {
    if (!style_.indent) return;
    out += '\n';
    for (int i = 0; i < depth; ++i) out += *style_.indent;
  }

  const JsonStyle& style_;
};

}  // namespace

absl::StatusOr<std::string> DumpJson(const Value& value, const JsonStyle& style) {
  return Dumper(style).Dump(value, 0);
}

}  // namespace tandem::jinja
