// The parser's operators.

#include <cerrno>
#include <cstdlib>

#include "common/base/status.h"
#include "common/text/jinja/parser.h"

namespace tandem::jinja {

bool Parser::AtTupleEnd() const {
  return Current().kind == TokenKind::kVariableEnd || Current().kind == TokenKind::kBlockEnd ||
         Current().IsOperator(")") || Current().IsName("recursive");
}

// `a, b` without parentheses is a tuple.
Parser::Result Parser::ParseTupleOrExpression(Ternary ternary) {
  const int line = Current().line;
  TANDEM_ASSIGN_OR_RETURN(ExpressionPtr first, ParseExpression(ternary));
  if (!Current().IsOperator(",")) return first;
  auto tuple = std::make_unique<SequenceDisplay>(line, /*tuple=*/true);
  tuple->items.push_back(std::move(first));
  while (SkipOperator(",") && !AtTupleEnd()) {
    TANDEM_ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression(ternary));
    tuple->items.push_back(std::move(item));
  }
  return tuple;
}

Parser::Result Parser::ParseExpression(Ternary ternary) {
  const DepthGuard guard(depth_);
  if (guard.too_deep()) return Error("expressions are nested too deeply");
  if (open_expressions_ == 0) operators_ = 0;
  const DepthGuard open(open_expressions_);
  return ternary == Ternary::kAllowed ? ParseConditional() : ParseOr();
}

absl::Status Parser::CountOperator() {
  if (++operators_ <= kMaxOperators) return absl::OkStatus();
  return Error(fmt::format("an expression has more than {} operators; set parts of it as variables",
                           kMaxOperators));
}

Parser::Result Parser::ParseConditional() {
  const int line = Current().line;
  TANDEM_ASSIGN_OR_RETURN(ExpressionPtr node, ParseOr());
  while (SkipName("if")) {
    TANDEM_RETURN_IF_ERROR(CountOperator());
    TANDEM_ASSIGN_OR_RETURN(ExpressionPtr test, ParseOr());
    ExpressionPtr otherwise;
    if (SkipName("else")) {
      TANDEM_ASSIGN_OR_RETURN(otherwise, ParseExpression());
    }
    node =
        std::make_unique<Conditional>(line, std::move(test), std::move(node), std::move(otherwise));
  }
  return node;
}

Parser::Result Parser::ParseOr() {
  const int line = Current().line;
  TANDEM_ASSIGN_OR_RETURN(ExpressionPtr node, ParseAnd());
  while (SkipName("or")) {
    TANDEM_RETURN_IF_ERROR(CountOperator());
    TANDEM_ASSIGN_OR_RETURN(ExpressionPtr right, ParseAnd());
    node = std::make_unique<Logical>(line, false, std::move(node), std::move(right));
  }
  return node;
}

Parser::Result Parser::ParseAnd() {
  const int line = Current().line;
  TANDEM_ASSIGN_OR_RETURN(ExpressionPtr node, ParseNot());
  while (SkipName("and")) {
    TANDEM_RETURN_IF_ERROR(CountOperator());
    TANDEM_ASSIGN_OR_RETURN(ExpressionPtr right, ParseNot());
    node = std::make_unique<Logical>(line, true, std::move(node), std::move(right));
  }
  return node;
}

Parser::Result Parser::ParseNot() {
  const int line = Current().line;
  if (!SkipName("not")) return ParseComparison();
  const DepthGuard guard(depth_);
  if (guard.too_deep()) return Error("expressions are nested too deeply");
  TANDEM_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseNot());
  return std::make_unique<Unary>(line, Unary::Kind::kNot, std::move(operand));
}

Parser::Result Parser::ParseComparison() {
  using Relation = Comparison::Kind;
  static constexpr std::pair<const char*, Relation> kOperators[] = {
      {"==", Relation::kEqual},     {"!=", Relation::kNotEqual}, {"<", Relation::kLess},
      {"<=", Relation::kLessEqual}, {">", Relation::kGreater},   {">=", Relation::kGreaterEqual}};
  const int line = Current().line;
  TANDEM_ASSIGN_OR_RETURN(ExpressionPtr first, ParseSum());
  auto node = std::make_unique<Comparison>(line, std::move(first));
  while (true) {
    std::optional<Relation> kind;
    for (const auto& [symbol, candidate] : kOperators) {
      if (Current().IsOperator(symbol)) kind = candidate;
    }
    if (Current().IsName("in")) {
      kind = Relation::kIn;
    } else if (Current().IsName("not") && Peek().IsName("in")) {
      Advance();
      kind = Relation::kNotIn;
    }
    if (!kind) break;
    Advance();
    TANDEM_ASSIGN_OR_RETURN(ExpressionPtr right, ParseSum());
    node->rest.emplace_back(*kind, std::move(right));
  }
  if (node->rest.empty()) return std::move(node->first);
  return node;
}

Parser::Result Parser::ParseSum() {
  TANDEM_ASSIGN_OR_RETURN(ExpressionPtr node, ParseConcatenation());
  while (Current().IsOperator("+") || Current().IsOperator("-")) {
    const int line = Current().line;
    const Operator op = Current().IsOperator("+") ? Operator::kAdd : Operator::kSubtract;
    Advance();
    TANDEM_RETURN_IF_ERROR(CountOperator());
    TANDEM_ASSIGN_OR_RETURN(ExpressionPtr right, ParseConcatenation());
    node = std::make_unique<Binary>(line, op, std::move(node), std::move(right));
  }
  return node;
}

Parser::Result Parser::ParseConcatenation() {
  auto node = std::make_unique<Concatenation>(Current().line);
  do {
    TANDEM_ASSIGN_OR_RETURN(ExpressionPtr part, ParseProduct());
    node->parts.push_back(std::move(part));
  } while (SkipOperator("~"));
  if (node->parts.size() == 1) return std::move(node->parts[0]);
  return node;
}

Parser::Result Parser::ParseProduct() {
  static constexpr std::pair<const char*, Operator> kOperators[] = {{"*", Operator::kMultiply},
                                                                    {"/", Operator::kDivide},
                                                                    {"//", Operator::kFloorDivide},
                                                                    {"%", Operator::kModulo}};
  TANDEM_ASSIGN_OR_RETURN(ExpressionPtr node, ParsePower());
  while (true) {
    std::optional<Operator> op;
    for (const auto& [symbol, candidate] : kOperators) {
      if (Current().IsOperator(symbol)) op = candidate;
    }
    if (!op) return node;
    const int line = Current().line;
    Advance();
    TANDEM_RETURN_IF_ERROR(CountOperator());
    TANDEM_ASSIGN_OR_RETURN(ExpressionPtr right, ParsePower());
    node = std::make_unique<Binary>(line, *op, std::move(node), std::move(right));
  }
}

Parser::Result Parser::ParsePower() {
  TANDEM_ASSIGN_OR_RETURN(ExpressionPtr node, ParseUnary(true));
  while (Current().IsOperator("**")) {
    const int line = Current().line;
    Advance();
    TANDEM_RETURN_IF_ERROR(CountOperator());
    TANDEM_ASSIGN_OR_RETURN(ExpressionPtr right, ParseUnary(true));
    node = std::make_unique<Binary>(line, Operator::kPower, std::move(node), std::move(right));
  }
  return node;
}

// A sign binds tighter than a filter: -1|abs is (-1)|abs.
Parser::Result Parser::ParseUnary(bool with_filters) {
  const DepthGuard guard(depth_);
  if (guard.too_deep()) return Error("expressions are nested too deeply");
  const int line = Current().line;
  ExpressionPtr node;
  if (Current().IsOperator("-") || Current().IsOperator("+")) {
    const auto kind = Current().IsOperator("-") ? Unary::Kind::kMinus : Unary::Kind::kPlus;
    Advance();
    TANDEM_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseUnary(false));
    node = std::make_unique<Unary>(line, kind, std::move(operand));
  } else {
    TANDEM_ASSIGN_OR_RETURN(node, ParsePrimary());
  }
  TANDEM_ASSIGN_OR_RETURN(node, ParsePostfix(std::move(node)));
  if (!with_filters) return node;
  return ParseFilters(std::move(node));
}

// The parser's operands: literals, names, subscripts, calls, filters and tests.

namespace {

std::optional<Value> NamedConstant(const std::string& name) {
  if (name == "true" || name == "True") return Value::Bool(true);
  if (name == "false" || name == "False") return Value::Bool(false);
  if (name == "none" || name == "None") return Value::None();
  return std::nullopt;
}

}  // namespace

Parser::Result Parser::ParsePrimary() {
  const Token token = Current();
  switch (token.kind) {
    case TokenKind::kName: {
      Advance();
      if (auto constant = NamedConstant(token.text)) {
        return std::make_unique<Literal>(token.line, *std::move(constant));
      }
      for (std::set<std::string>* names : name_collectors_) names->insert(token.text);
      return std::make_unique<Name>(token.line, token.text);
    }
    case TokenKind::kString: {
      std::string text;
      for (; Current().kind == TokenKind::kString; Advance()) text += Current().text;
      return std::make_unique<Literal>(token.line, Value::String(std::move(text)));
    }
    case TokenKind::kInteger: {
      errno = 0;
      const int64_t number = std::strtoll(token.text.c_str(), nullptr, 10);
      if (errno == ERANGE) return Error("the integer " + token.text + " does not fit 64 bits");
      Advance();
      return std::make_unique<Literal>(token.line, Value::Int(number));
    }
    case TokenKind::kFloat:
      Advance();
      return std::make_unique<Literal>(token.line,
                                       Value::Float(std::strtod(token.text.c_str(), nullptr)));
    default:
      break;
  }
  if (token.IsOperator("(")) return ParseParenthesized();
  if (token.IsOperator("[")) return ParseListDisplay();
  if (token.IsOperator("{")) return ParseMappingDisplay();
  return Error("unexpected " + Describe());
}

Parser::Result Parser::ParseParenthesized() {
  const int line = Current().line;
  Advance();
  if (SkipOperator(")")) return std::make_unique<SequenceDisplay>(line, /*tuple=*/true);
  TANDEM_ASSIGN_OR_RETURN(ExpressionPtr node, ParseTupleOrExpression(Ternary::kAllowed));
  TANDEM_RETURN_IF_ERROR(ExpectOperator(")"));
  return node;
}

Parser::Result Parser::ParseListDisplay() {
  auto list = std::make_unique<SequenceDisplay>(Current().line, /*tuple=*/false);
  Advance();
  while (!SkipOperator("]")) {
    if (!list->items.empty()) {
      TANDEM_RETURN_IF_ERROR(ExpectOperator(","));
      if (SkipOperator("]")) break;
    }
    TANDEM_ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression());
    list->items.push_back(std::move(item));
  }
  return list;
}

Parser::Result Parser::ParseMappingDisplay() {
  auto mapping = std::make_unique<MappingDisplay>(Current().line);
  Advance();
  while (!SkipOperator("}")) {
    if (!mapping->items.empty()) {
      TANDEM_RETURN_IF_ERROR(ExpectOperator(","));
      if (SkipOperator("}")) break;
    }
    TANDEM_ASSIGN_OR_RETURN(ExpressionPtr key, ParseExpression());
    TANDEM_RETURN_IF_ERROR(ExpectOperator(":"));
    TANDEM_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    mapping->items.emplace_back(std::move(key), std::move(value));
  }
  return mapping;
}

Parser::Result Parser::ParsePostfix(ExpressionPtr node) {
  while (true) {
    if (Current().IsOperator(".") || Current().IsOperator("[")) {
      TANDEM_RETURN_IF_ERROR(CountOperator());
      TANDEM_ASSIGN_OR_RETURN(node, ParseSubscript(std::move(node)));
    } else if (Current().IsOperator("(")) {
      TANDEM_RETURN_IF_ERROR(CountOperator());
      const int line = Current().line;
      TANDEM_ASSIGN_OR_RETURN(CallArguments arguments, ParseCallArguments());
      node = std::make_unique<Call>(line, std::move(node), std::move(arguments));
    } else {
      return node;
    }
  }
}

Parser::Result Parser::ParseFilters(ExpressionPtr node) {
  while (true) {
    if (Current().IsOperator("|")) {
      TANDEM_ASSIGN_OR_RETURN(node, ParseFilterChain(std::move(node)));
    } else if (Current().IsName("is")) {
      TANDEM_RETURN_IF_ERROR(CountOperator());
      TANDEM_ASSIGN_OR_RETURN(node, ParseTest(std::move(node)));
    } else if (Current().IsOperator("(")) {
      TANDEM_RETURN_IF_ERROR(CountOperator());
      const int line = Current().line;
      TANDEM_ASSIGN_OR_RETURN(CallArguments arguments, ParseCallArguments());
      node = std::make_unique<Call>(line, std::move(node), std::move(arguments));
    } else {
      return node;
    }
  }
}

Parser::Result Parser::ParseFilterChain(ExpressionPtr node) {
  while (SkipOperator("|")) {
    TANDEM_RETURN_IF_ERROR(CountOperator());
    TANDEM_ASSIGN_OR_RETURN(node, ParseFilterCall(std::move(node)));
  }
  return node;
}

Parser::Result Parser::ParseFilterCall(ExpressionPtr node) {
  const int line = Current().line;
  TANDEM_ASSIGN_OR_RETURN(std::string name, ParseDottedName());
  CallArguments arguments;
  if (Current().IsOperator("(")) {
    TANDEM_ASSIGN_OR_RETURN(arguments, ParseCallArguments());
  }
  return std::make_unique<Filter>(line, std::move(node), std::move(name), std::move(arguments));
}

absl::StatusOr<std::string> Parser::ParseDottedName() {
  TANDEM_ASSIGN_OR_RETURN(std::string name, ExpectName());
  while (SkipOperator(".")) {
    TANDEM_ASSIGN_OR_RETURN(const std::string part, ExpectName());
    name += "." + part;
  }
  return name;
}

// `is [not] name`, with arguments in parentheses or a single operand without.
Parser::Result Parser::ParseTest(ExpressionPtr node) {
  const int line = Current().line;
  Advance();
  const bool negated = SkipName("not");
  TANDEM_ASSIGN_OR_RETURN(std::string name, ParseDottedName());
  CallArguments arguments;
  const Token& next = Current();
  const bool operand = (next.kind == TokenKind::kName && !next.IsName("else") &&
                        !next.IsName("or") && !next.IsName("and")) ||
                       next.kind == TokenKind::kString || next.kind == TokenKind::kInteger ||
                       next.kind == TokenKind::kFloat || next.IsOperator("[") ||
                       next.IsOperator("{");
  if (next.IsOperator("(")) {
    TANDEM_ASSIGN_OR_RETURN(arguments, ParseCallArguments());
  } else if (operand) {
    if (next.IsName("is")) return Error("You cannot chain multiple tests with is");
    TANDEM_ASSIGN_OR_RETURN(ExpressionPtr argument, ParsePrimary());
    TANDEM_ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    arguments.positional.push_back(std::move(argument));
  }
  ExpressionPtr test =
      std::make_unique<Test>(line, std::move(node), std::move(name), std::move(arguments));
  if (!negated) return test;
  return std::make_unique<Unary>(line, Unary::Kind::kNot, std::move(test));
}

Parser::Result Parser::ParseSubscript(ExpressionPtr node) {
  const int line = Current().line;
  if (Current().IsOperator("[")) return ParseBracket(std::move(node));
  Advance();
  const Token token = Current();
  Advance();
  if (token.kind == TokenKind::kName) {
    return std::make_unique<Attribute>(line, std::move(node), token.text);
  }
  if (token.kind != TokenKind::kInteger) return Error("expected name or number");
  auto key = std::make_unique<Literal>(line, Value::Int(std::atoll(token.text.c_str())));
  return std::make_unique<Item>(line, std::move(node), std::move(key));
}

// [key] or [start:stop:step].
Parser::Result Parser::ParseBracket(ExpressionPtr node) {
  const int line = Current().line;
  Advance();
  ExpressionPtr parts[3];
  int colons = 0;
  while (!Current().IsOperator("]")) {
    if (colons < 2 && SkipOperator(":")) {
      ++colons;
      continue;
    }
    if (parts[colons] != nullptr) return Error("expected ']', got " + Describe());
    TANDEM_ASSIGN_OR_RETURN(parts[colons], ParseTupleOrExpression(Ternary::kAllowed));
  }
  Advance();
  if (colons == 0) {
    if (parts[0] == nullptr) return Error("expected subscript expression");
    return std::make_unique<Item>(line, std::move(node), std::move(parts[0]));
  }
  auto slice = std::make_unique<Slice>(line, std::move(node));
  slice->start = std::move(parts[0]);
  slice->stop = std::move(parts[1]);
  slice->step = std::move(parts[2]);
  return slice;
}

absl::StatusOr<CallArguments> Parser::ParseCallArguments() {
  CallArguments arguments;
  TANDEM_RETURN_IF_ERROR(ExpectOperator("("));
  for (bool first = true; !SkipOperator(")"); first = false) {
    if (!first) {
      TANDEM_RETURN_IF_ERROR(ExpectOperator(","));
      if (SkipOperator(")")) break;
    }
    if (SkipOperator("*")) {
      if (arguments.spread || arguments.named_spread) return Error("only one *args is allowed");
      TANDEM_ASSIGN_OR_RETURN(arguments.spread, ParseExpression());
    } else if (SkipOperator("**")) {
      if (arguments.named_spread) return Error("only one **kwargs is allowed");
      TANDEM_ASSIGN_OR_RETURN(arguments.named_spread, ParseExpression());
    } else if (Current().kind == TokenKind::kName && Peek().IsOperator("=")) {
      const std::string name = Current().text;
      Advance();
      Advance();
      TANDEM_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
      arguments.named.emplace_back(name, std::move(value));
    } else {
      if (!arguments.named.empty() || arguments.spread || arguments.named_spread) {
        return Error("a positional argument follows a named one");
      }
      TANDEM_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
      arguments.positional.push_back(std::move(value));
    }
  }
  return arguments;
}

}  // namespace tandem::jinja
