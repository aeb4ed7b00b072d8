// Splits template source into tokens, with trim_blocks and lstrip_blocks on.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace tandem::jinja {

enum class TokenKind {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind;
  std::string text;  // strings are unescaped, numbers without underscores
  int line;

  bool Is(TokenKind wanted, const char* wanted_text) const {
    return kind == wanted && text == wanted_text;
  }
  bool IsName(const char* name) const { return Is(TokenKind::kName, name); }
  bool IsOperator(const char* symbol) const { return Is(TokenKind::kOperator, symbol); }
};

// Ends with a kEnd token. InvalidArgument: not UTF-8, an unclosed tag, comment, raw block or
// string, or a character that starts no token; the message has the line.
absl::StatusOr<std::vector<Token>> Tokenize(const std::string& source);

// Tokens inside tags.

// The token at `pos`; moves `pos` behind it. The caller skips white space and sets the line.
absl::StatusOr<Token> NextExpressionToken(const std::string& source, size_t& pos);

}  // namespace tandem::jinja
