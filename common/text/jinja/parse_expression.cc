// The parser's operators.
#include "common/base/status_macros.h"
#include "common/text/jinja/depth_guard.h"
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
  return ternary == Ternary::kAllowed ? ParseConditional() : ParseOr();
}

Parser::Result Parser::ParseConditional() {
  const int line = Current().line;
  TANDEM_ASSIGN_OR_RETURN(ExpressionPtr node, ParseOr());
  while (SkipName("if")) {
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
    TANDEM_ASSIGN_OR_RETURN(ExpressionPtr right, ParseAnd());
    node = std::make_unique<Logical>(line, false, std::move(node), std::move(right));
  }
  return node;
}

Parser::Result Parser::ParseAnd() {
  const int line = Current().line;
  TANDEM_ASSIGN_OR_RETURN(ExpressionPtr node, ParseNot());
  while (SkipName("and")) {
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
    TANDEM_ASSIGN_OR_RETURN(ExpressionPtr right, ParsePower());
    node = std::make_unique<Binary>(line, *op, std::move(node), std::move(right));
  }
}

Parser::Result Parser::ParsePower() {
  TANDEM_ASSIGN_OR_RETURN(ExpressionPtr node, ParseUnary(true));
  while (Current().IsOperator("**")) {
    const int line = Current().line;
    Advance();
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

}  // namespace tandem::jinja
