// Parses the tokens of a template into its tree.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/text/jinja/ast.h"
#include "common/text/jinja/lexer.h"

namespace tandem::jinja {

inline constexpr int kMaxNesting = 200;
// The most operators, filters, subscripts and calls of one expression. Each may add a level to the
// tree.
inline constexpr int kMaxOperators = 1000;

// Counts nesting while a parser function runs.
class DepthGuard {
 public:
  explicit DepthGuard(int& depth) : depth_(depth) { ++depth_; }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;
  bool too_deep() const { return depth_ > kMaxNesting; }

 private:
  int& depth_;
};

// InvalidArgument with the line: a syntax error, or a tag that is not supported (include, import,
// extends, autoescape).
absl::StatusOr<Body> ParseTemplate(const std::string& source);

// Recursive descent, one instance per template. Expressions are in parse_expression.cc, statements
// in parser.cc.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // Parses up to the end, or to a tag named in `end_names`, whose name is then the current token.
  absl::StatusOr<Body> ParseBody(const std::set<std::string>& end_names);

 private:
  using Result = absl::StatusOr<ExpressionPtr>;
  using StatementResult = absl::StatusOr<std::unique_ptr<Statement>>;
  enum class Ternary { kAllowed, kRefused };

  // Statements.
  StatementResult ParseStatement();
  StatementResult ParseIf(int line);
  StatementResult ParseFor(int line);
  StatementResult ParseSet(int line);
  StatementResult ParseFilterBlock(int line);
  StatementResult ParsePrint(int line);
  StatementResult ParseWith(int line);
  StatementResult ParseScope(int line, const std::string& end);
  StatementResult ParseMacro(int line);
  StatementResult ParseCallBlock(int line);
  absl::StatusOr<Body> ParseBlockBody(const std::set<std::string>& end_names);
  absl::StatusOr<Body> ParseLoopBody(const std::set<std::string>& end_names);
  // The body up to {% end %}, whose name is consumed.
  absl::StatusOr<Body> ParseClosedBody(const std::string& end);
  absl::Status ParseParameters(MacroDefinition& macro);
  absl::Status ParseMacroBody(const std::string& end, MacroDefinition& macro);
  absl::StatusOr<Target> ParseTarget(bool allow_attribute);
  absl::StatusOr<Target> ParseSingleTarget(bool allow_attribute);

  // Expressions, loosest binding first.
  Result ParseTupleOrExpression(Ternary ternary);
  Result ParseExpression(Ternary ternary = Ternary::kAllowed);
  Result ParseConditional();
  Result ParseOr();
  Result ParseAnd();
  Result ParseNot();
  Result ParseComparison();
  Result ParseSum();
  Result ParseConcatenation();
  Result ParseProduct();
  Result ParsePower();
  Result ParseUnary(bool with_filters);
  Result ParsePrimary();
  Result ParseParenthesized();
  Result ParseListDisplay();
  Result ParseMappingDisplay();
  Result ParsePostfix(ExpressionPtr node);
  Result ParseFilters(ExpressionPtr node);
  Result ParseFilterChain(ExpressionPtr node);
  Result ParseFilterCall(ExpressionPtr node);
  Result ParseTest(ExpressionPtr node);
  Result ParseSubscript(ExpressionPtr node);
  Result ParseBracket(ExpressionPtr node);
  absl::StatusOr<CallArguments> ParseCallArguments();
  absl::StatusOr<std::string> ParseDottedName();
  bool AtTupleEnd() const;
  // Counts an operator whose left operand is everything parsed so far in the expression.
  absl::Status CountOperator();

  // Tokens.
  const Token& Current() const { return tokens_[position_]; }
  const Token& Peek() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  void Advance() {
    if (position_ + 1 < tokens_.size()) ++position_;
  }
  bool SkipName(const char* name);
  bool SkipOperator(const char* symbol);
  absl::Status ExpectOperator(const char* symbol);
  absl::StatusOr<std::string> ExpectName();
  absl::Status Expect(TokenKind kind, const char* what);
  absl::Status Error(const std::string& message) const;
  std::string Describe() const;

  std::vector<Token> tokens_;
  size_t position_ = 0;
  int depth_ = 0;             // nesting, bounded so that no template overflows the stack
  int open_expressions_ = 0;  // inside each other
  int operators_ = 0;         // of the outermost open expression
  int loop_depth_ = 0;        // break and continue need a loop
  std::vector<std::set<std::string>*> name_collectors_;  // names read in the macros being parsed
};

}  // namespace tandem::jinja
