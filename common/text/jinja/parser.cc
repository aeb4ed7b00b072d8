// Tokens and shared pieces of the parser.
#include "common/text/jinja/parser.h"

#include "common/base/status_macros.h"

namespace tandem::jinja {

bool Parser::SkipName(const char* name) {
  if (!Current().IsName(name)) return false;
  Advance();
  return true;
}

bool Parser::SkipOperator(const char* symbol) {
  if (!Current().IsOperator(symbol)) return false;
  Advance();
  return true;
}

absl::Status Parser::ExpectOperator(const char* symbol) {
  if (SkipOperator(symbol)) return absl::OkStatus();
  return Error(fmt::format("expected '{}', got {}", symbol, Describe()));
}

absl::StatusOr<std::string> Parser::ExpectName() {
  if (Current().kind != TokenKind::kName) {
    return Error(fmt::format("expected a name, got {}", Describe()));
  }
  std::string name = Current().text;
  Advance();
  return name;
}

absl::Status Parser::Expect(TokenKind kind, const char* what) {
  if (Current().kind != kind) return Error(fmt::format("expected {}, got {}", what, Describe()));
  Advance();
  return absl::OkStatus();
}

absl::Status Parser::Error(const std::string& message) const {
  return InvalidArgument("line {}: {}", Current().line, message);
}

std::string Parser::Describe() const {
  switch (Current().kind) {
    case TokenKind::kData:
      return "template text";
    case TokenKind::kVariableBegin:
      return "'{{'";
    case TokenKind::kVariableEnd:
      return "'}}'";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kEnd:
      return "the end of the template";
    default:
      return "'" + Current().text + "'";
  }
}

absl::StatusOr<Body> ParseTemplate(const std::string& source) {
  TANDEM_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).ParseBody({});
}

}  // namespace tandem::jinja
