// Tokens and shared pieces of the parser.

#include "common/text/jinja/parser.h"

#include "common/base/status.h"
#include "common/text/jinja/value/allowance.h"
#include "common/text/unicode/utf8.h"

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
  if (source.size() > kMaxSourceBytes) {
    return InvalidArgument("{} bytes are too many for a template, {} are allowed", source.size(),
                           kMaxSourceBytes);
  }
  if (!IsValidUtf8(source)) return InvalidArgument("the template is not UTF-8");
  TANDEM_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).ParseBody({});
}

// The parser's statements.
absl::StatusOr<Body> Parser::ParseBody(const std::set<std::string>& end_names) {
  const DepthGuard guard(depth_);
  if (guard.too_deep()) return Error("blocks are nested too deeply");
  Body body;
  while (true) {
    const Token& token = Current();
    const int line = token.line;
    if (token.kind == TokenKind::kData) {
      body.push_back(std::make_unique<DataStatement>(line, token.text));
      Advance();
    } else if (token.kind == TokenKind::kVariableBegin) {
      Advance();
      TANDEM_ASSIGN_OR_RETURN(ExpressionPtr value, ParseTupleOrExpression(Ternary::kAllowed));
      TANDEM_RETURN_IF_ERROR(Expect(TokenKind::kVariableEnd, "'}}'"));
      body.push_back(std::make_unique<OutputStatement>(line, std::move(value)));
    } else if (token.kind == TokenKind::kBlockBegin) {
      Advance();
      if (Current().kind == TokenKind::kName && end_names.contains(Current().text)) return body;
      TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Statement> statement, ParseStatement());
      TANDEM_RETURN_IF_ERROR(Expect(TokenKind::kBlockEnd, "'%}'"));
      body.push_back(std::move(statement));
    } else if (!end_names.empty()) {
      return Error(fmt::format("unexpected end of template, '{}' is missing", *end_names.rbegin()));
    } else {
      return body;
    }
  }
}

Parser::StatementResult Parser::ParseStatement() {
  const int line = Current().line;
  TANDEM_ASSIGN_OR_RETURN(const std::string name, ExpectName());
  if (name == "if") return ParseIf(line);
  if (name == "for") return ParseFor(line);
  if (name == "set") return ParseSet(line);
  if (name == "with") return ParseWith(line);
  if (name == "macro") return ParseMacro(line);
  if (name == "call") return ParseCallBlock(line);
  if (name == "filter") return ParseFilterBlock(line);
  if (name == "generation") return ParseScope(line, "endgeneration");
  if (name == "break" || name == "continue") {
    if (loop_depth_ == 0) return Error("'" + name + "' outside loop");
    return std::make_unique<LoopControlStatement>(line,
                                                  name == "break" ? Flow::kBreak : Flow::kContinue);
  }
  if (name == "print") {
    return ParsePrint(line);
  }
  return InvalidArgument("line {}: unknown or unsupported tag '{}'", line, name);
}

absl::StatusOr<Body> Parser::ParseBlockBody(const std::set<std::string>& end_names) {
  SkipOperator(":");
  TANDEM_RETURN_IF_ERROR(Expect(TokenKind::kBlockEnd, "'%}'"));
  return ParseBody(end_names);
}

absl::StatusOr<Body> Parser::ParseLoopBody(const std::set<std::string>& end_names) {
  ++loop_depth_;
  absl::StatusOr<Body> body = ParseBlockBody(end_names);
  --loop_depth_;
  return body;
}

absl::StatusOr<Body> Parser::ParseClosedBody(const std::string& end) {
  TANDEM_ASSIGN_OR_RETURN(Body body, ParseBlockBody({end}));
  Advance();
  return body;
}

Parser::StatementResult Parser::ParseIf(int line) {
  auto statement = std::make_unique<IfStatement>(line);
  while (true) {
    TANDEM_ASSIGN_OR_RETURN(ExpressionPtr test, ParseTupleOrExpression(Ternary::kRefused));
    TANDEM_ASSIGN_OR_RETURN(Body body, ParseBlockBody({"elif", "else", "endif"}));
    statement->branches.emplace_back(std::move(test), std::move(body));
    if (SkipName("elif")) continue;
    if (SkipName("else")) {
      TANDEM_ASSIGN_OR_RETURN(statement->otherwise, ParseClosedBody("endif"));
    } else {
      Advance();
    }
    return statement;
  }
}

Parser::StatementResult Parser::ParseFor(int line) {
  auto statement = std::make_unique<ForStatement>(line);
  TANDEM_ASSIGN_OR_RETURN(statement->target, ParseTarget(/*allow_attribute=*/false));
  if (!SkipName("in")) return Error(fmt::format("expected 'in', got {}", Describe()));
  TANDEM_ASSIGN_OR_RETURN(statement->iterable, ParseTupleOrExpression(Ternary::kRefused));
  if (SkipName("if")) {
    TANDEM_ASSIGN_OR_RETURN(statement->condition, ParseExpression());
  }
  statement->recursive = SkipName("recursive");
  TANDEM_ASSIGN_OR_RETURN(statement->body, ParseLoopBody({"endfor", "else"}));
  if (SkipName("else")) {
    TANDEM_ASSIGN_OR_RETURN(statement->otherwise, ParseClosedBody("endfor"));
  } else {
    Advance();
  }
  return statement;
}

Parser::StatementResult Parser::ParseSet(int line) {
  TANDEM_ASSIGN_OR_RETURN(Target target, ParseTarget(/*allow_attribute=*/true));
  if (SkipOperator("=")) {
    auto statement = std::make_unique<SetStatement>(line);
    statement->target = std::move(target);
    TANDEM_ASSIGN_OR_RETURN(statement->value, ParseTupleOrExpression(Ternary::kAllowed));
    return statement;
  }
  auto statement = std::make_unique<CaptureStatement>(line);
  statement->target = std::move(target);
  TANDEM_ASSIGN_OR_RETURN(statement->filter, ParseFilterChain(nullptr));
  TANDEM_ASSIGN_OR_RETURN(statement->body, ParseClosedBody("endset"));
  return statement;
}

Parser::StatementResult Parser::ParseFilterBlock(int line) {
  auto statement = std::make_unique<CaptureStatement>(line);
  TANDEM_ASSIGN_OR_RETURN(ExpressionPtr first, ParseFilterCall(nullptr));
  TANDEM_ASSIGN_OR_RETURN(statement->filter, ParseFilterChain(std::move(first)));
  TANDEM_ASSIGN_OR_RETURN(statement->body, ParseClosedBody("endfilter"));
  return statement;
}

// Unlike {{ a, b }} this prints each value by itself.
Parser::StatementResult Parser::ParsePrint(int line) {
  auto text = std::make_unique<Concatenation>(line);
  do {
    if (!text->parts.empty() && Current().kind == TokenKind::kBlockEnd) break;
    TANDEM_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    text->parts.push_back(std::move(value));
  } while (SkipOperator(","));
  return std::make_unique<OutputStatement>(line, std::move(text));
}

Parser::StatementResult Parser::ParseWith(int line) {
  auto statement = std::make_unique<ScopeStatement>(line);
  while (Current().kind != TokenKind::kBlockEnd) {
    if (!statement->assignments.empty()) TANDEM_RETURN_IF_ERROR(ExpectOperator(","));
    TANDEM_ASSIGN_OR_RETURN(Target target, ParseTarget(/*allow_attribute=*/false));
    TANDEM_RETURN_IF_ERROR(ExpectOperator("="));
    TANDEM_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    statement->assignments.emplace_back(std::move(target), std::move(value));
  }
  TANDEM_ASSIGN_OR_RETURN(statement->body, ParseClosedBody("endwith"));
  return statement;
}

Parser::StatementResult Parser::ParseScope(int line, const std::string& end) {
  auto statement = std::make_unique<ScopeStatement>(line);
  TANDEM_ASSIGN_OR_RETURN(statement->body, ParseClosedBody(end));
  return statement;
}

absl::Status Parser::ParseParameters(MacroDefinition& macro) {
  TANDEM_RETURN_IF_ERROR(ExpectOperator("("));
  while (!SkipOperator(")")) {
    if (!macro.parameters.empty()) TANDEM_RETURN_IF_ERROR(ExpectOperator(","));
    TANDEM_ASSIGN_OR_RETURN(std::string name, ExpectName());
    ExpressionPtr fallback;
    if (SkipOperator("=")) {
      TANDEM_ASSIGN_OR_RETURN(fallback, ParseExpression());
    } else if (!macro.parameters.empty() && macro.parameters.back().second != nullptr) {
      return Error("non-default argument follows default argument");
    }
    macro.parameters.emplace_back(std::move(name), std::move(fallback));
  }
  return absl::OkStatus();
}

absl::Status Parser::ParseMacroBody(const std::string& end, MacroDefinition& macro) {
  std::set<std::string> names;
  name_collectors_.push_back(&names);
  const int loops = std::exchange(loop_depth_, 0);
  absl::StatusOr<Body> body = ParseClosedBody(end);
  loop_depth_ = loops;
  name_collectors_.pop_back();
  TANDEM_RETURN_IF_ERROR(body.status());
  macro.body = *std::move(body);
  macro.uses_varargs = names.contains("varargs");
  macro.uses_kwargs = names.contains("kwargs");
  macro.uses_caller = names.contains("caller");
  return absl::OkStatus();
}

Parser::StatementResult Parser::ParseMacro(int line) {
  auto statement = std::make_unique<MacroStatement>(line);
  TANDEM_ASSIGN_OR_RETURN(statement->macro.name, ExpectName());
  TANDEM_RETURN_IF_ERROR(ParseParameters(statement->macro));
  TANDEM_RETURN_IF_ERROR(ParseMacroBody("endmacro", statement->macro));
  return statement;
}

Parser::StatementResult Parser::ParseCallBlock(int line) {
  auto statement = std::make_unique<CallBlockStatement>(line);
  statement->caller.name = "caller";
  if (Current().IsOperator("(")) TANDEM_RETURN_IF_ERROR(ParseParameters(statement->caller));
  TANDEM_ASSIGN_OR_RETURN(ExpressionPtr expression, ParseExpression());
  auto* call = dynamic_cast<Call*>(expression.get());
  if (call == nullptr) return Error("expected call");
  expression.release();
  statement->call.reset(call);
  TANDEM_RETURN_IF_ERROR(ParseMacroBody("endcall", statement->caller));
  return statement;
}

absl::StatusOr<Target> Parser::ParseSingleTarget(bool allow_attribute) {
  const DepthGuard guard(depth_);
  if (guard.too_deep()) return Error("targets are nested too deeply");
  if (SkipOperator("(")) {
    TANDEM_ASSIGN_OR_RETURN(Target inner, ParseTarget(allow_attribute));
    TANDEM_RETURN_IF_ERROR(ExpectOperator(")"));
    return inner;
  }
  Target target;
  TANDEM_ASSIGN_OR_RETURN(target.name, ExpectName());
  if (allow_attribute && SkipOperator(".")) {
    TANDEM_ASSIGN_OR_RETURN(target.attribute, ExpectName());
  }
  static const std::set<std::string> kConstants = {"true", "false", "none",
                                                   "True", "False", "None"};
  if (kConstants.contains(target.name)) return Error("can't assign to '" + target.name + "'");
  return target;
}

absl::StatusOr<Target> Parser::ParseTarget(bool allow_attribute) {
  TANDEM_ASSIGN_OR_RETURN(Target first, ParseSingleTarget(allow_attribute));
  if (!Current().IsOperator(",")) return first;
  Target tuple;
  tuple.parts.push_back(std::move(first));
  while (SkipOperator(",")) {
    if (Current().IsName("in") || Current().IsOperator("=") || Current().IsOperator(")")) break;
    TANDEM_ASSIGN_OR_RETURN(Target next, ParseSingleTarget(allow_attribute));
    tuple.parts.push_back(std::move(next));
  }
  return tuple;
}

}  // namespace tandem::jinja
