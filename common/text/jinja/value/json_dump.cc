#include "common/text/jinja/value/json_dump.h"

#include <algorithm>
#include <cmath>

#include "common/base/status_macros.h"
#include "common/text/jinja/value/compare.h"
#include "common/text/jinja/value/print.h"
#include "common/text/unicode/utf8.h"

namespace tandem::jinja {
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
    for (size_t i = 0; i < parts.size(); ++i) {
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
