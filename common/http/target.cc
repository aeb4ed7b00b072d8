#include "common/http/target.h"

#include <cstddef>
#include <optional>
#include <utility>

#include "common/base/status.h"

namespace tandem {
namespace {

constexpr size_t kMostParameters = 64;

std::optional<int> HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

absl::StatusOr<std::string> Decode(std::string_view text, bool plus_is_space) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '+' && plus_is_space) c = ' ';
    if (c == '%') {
      const auto high = i + 2 < text.size() ? HexDigit(text[i + 1]) : std::nullopt;
      const auto low = high ? HexDigit(text[i + 2]) : std::nullopt;
      if (!low) return InvalidArgument("the address has a \"%\" without two hexadecimal digits");
      c = static_cast<char>(*high * 16 + *low);
      i += 2;
    }
    if (c == '\0') return InvalidArgument("the address has a NUL");
    decoded += c;
  }
  return decoded;
}

bool HasDotSegment(std::string_view path) {
  while (!path.empty()) {
    path.remove_prefix(1);  // "/"
    const std::string_view segment = path.substr(0, path.find('/'));
    if (segment == "." || segment == "..") return true;
    path.remove_prefix(segment.size());
  }
  return false;
}

absl::Status AddParameter(std::string_view pair, HttpTarget& target) {
  if (pair.empty()) return absl::OkStatus();
  if (target.query.size() == kMostParameters) {
    return InvalidArgument("the address has more than {} parameters", kMostParameters);
  }
  const size_t equals = pair.find('=');
  TANDEM_ASSIGN_OR_RETURN(std::string name, Decode(pair.substr(0, equals), true));
  std::string value;
  if (equals != std::string_view::npos) {
    TANDEM_ASSIGN_OR_RETURN(value, Decode(pair.substr(equals + 1), true));
  }
  target.query.emplace(std::move(name), std::move(value));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<HttpTarget> ParseHttpTarget(std::string_view target) {
  if (target.empty() || target.front() != '/') {
    return InvalidArgument("the address must begin with \"/\"");
  }
  HttpTarget parsed;
  const size_t mark = target.find('?');
  TANDEM_ASSIGN_OR_RETURN(parsed.path, Decode(target.substr(0, mark), false));
  if (HasDotSegment(parsed.path)) {
    return InvalidArgument("the address has a segment \".\" or \"..\"");
  }
  if (mark == std::string_view::npos) return parsed;
  std::string_view rest = target.substr(mark + 1);
  rest = rest.substr(0, rest.find('#'));
  while (!rest.empty()) {
    const size_t end = rest.find('&');
    TANDEM_RETURN_IF_ERROR(AddParameter(rest.substr(0, end), parsed));
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  return parsed;
}

}  // namespace tandem
