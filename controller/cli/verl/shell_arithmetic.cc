#include "controller/cli/verl/shell_arithmetic.h"

#include <array>
#include <cctype>
#include <limits>
#include <string_view>
#include <utility>

#include <absl/strings/numbers.h>

#include "common/base/status.h"

namespace tandem {
namespace {

constexpr int kMaxArithmeticDepth = 100;

// Operators of two values by precedence, loosest first; within a level longer ones first.
constexpr std::array<std::array<std::string_view, 4>, 9> kLevels = {{{"||"},
                                                                     {"&&"},
                                                                     {"|"},
                                                                     {"^"},
                                                                     {"&"},
                                                                     {"==", "!="},
                                                                     {"<=", ">=", "<", ">"},
                                                                     {"+", "-"},
                                                                     {"*", "/", "%"}}};

class ArithmeticReader {
 public:
  ArithmeticReader(const std::string& text,
                   const std::function<std::string(const std::string&)>& variable)
      : text_(text), variable_(variable) {}

  absl::StatusOr<int64_t> Read() {
    TANDEM_ASSIGN_OR_RETURN(const int64_t value, Choice());
    if (SkipSpaces(); at_ < text_.size()) return Fail();
    return value;
  }

 private:
  absl::Status Fail() const {
    return InvalidArgument("\"{}\" is no arithmetic that is read here", text_);
  }
  void SkipSpaces() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool Take(std::string_view sign) {
    SkipSpaces();
    if (!std::string_view(text_).substr(at_).starts_with(sign)) return false;
    // Not the first half of another operator.
    const char next = at_ + sign.size() < text_.size() ? text_[at_ + sign.size()] : '\0';
    if (sign.size() == 1 && (std::string_view("&|").find(sign[0]) != std::string_view::npos) &&
        next == sign[0]) {
      return false;
    }
    if (sign == "*" && next == '*') return false;
    if ((sign == "<" || sign == ">") && next == sign[0]) return false;
    at_ += sign.size();
    return true;
  }

  absl::StatusOr<int64_t> Choice() {
    if (++depth_ > kMaxArithmeticDepth) return Fail();
    TANDEM_ASSIGN_OR_RETURN(const int64_t condition, Level(0));
    int64_t value = condition;
    if (Take("?")) {
      TANDEM_ASSIGN_OR_RETURN(const int64_t yes, Choice());
      if (!Take(":")) return Fail();
      TANDEM_ASSIGN_OR_RETURN(const int64_t no, Choice());
      value = condition != 0 ? yes : no;
    }
    --depth_;
    return value;
  }

  absl::StatusOr<int64_t> Level(size_t level) {
    if (level == kLevels.size()) return Power();
    TANDEM_ASSIGN_OR_RETURN(int64_t left, Level(level + 1));
    while (true) {
      std::string_view found;
      for (const std::string_view sign : kLevels[level]) {
        if (found.empty() && !sign.empty() && Take(sign)) found = sign;
      }
      if (found.empty()) return left;
      TANDEM_ASSIGN_OR_RETURN(const int64_t right, Level(level + 1));
      TANDEM_ASSIGN_OR_RETURN(left, Apply(found, left, right));
    }
  }

  absl::StatusOr<int64_t> Power() {
    if (++depth_ > kMaxArithmeticDepth) return Fail();
    TANDEM_ASSIGN_OR_RETURN(int64_t value, Unary());
    if (Take("**")) {
      TANDEM_ASSIGN_OR_RETURN(int64_t exponent, Power());
      if (exponent < 0 || exponent > 64) return Fail();
      int64_t result = 1;
      for (; exponent > 0; --exponent) result = Wrap(Bits(result) * Bits(value));
      value = result;
    }
    --depth_;
    return value;
  }

  absl::StatusOr<int64_t> Unary() {
    if (++depth_ > kMaxArithmeticDepth) return Fail();
    absl::StatusOr<int64_t> value = int64_t{0};
    if (Take("-")) {
      value = Unary();
      if (value.ok()) value = Wrap(0 - Bits(*value));
    } else if (Take("+")) {
      value = Unary();
    } else if (Take("!")) {
      value = Unary();
      if (value.ok()) value = int64_t{*value == 0};
    } else if (Take("(")) {
      value = Choice();
      if (value.ok() && !Take(")")) value = Fail();
    } else {
      value = Operand();
    }
    --depth_;
    return value;
  }

  absl::StatusOr<int64_t> Operand() {
    SkipSpaces();
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_')) {
      ++at_;
    }
    std::string word = text_.substr(begin, at_ - begin);
    if (word.empty()) return Fail();
    const bool is_name = std::isdigit(static_cast<unsigned char>(word[0])) == 0;
    if (is_name) word = variable_(word);
    int64_t value = 0;
    if (word.empty() || absl::SimpleAtoi(word, &value)) return value;
    return Fail();
  }

  static uint64_t Bits(int64_t value) { return static_cast<uint64_t>(value); }
  static int64_t Wrap(uint64_t bits) { return static_cast<int64_t>(bits); }

  absl::StatusOr<int64_t> Apply(std::string_view sign, int64_t a, int64_t b) const {
    if (sign == "||") return int64_t{a != 0 || b != 0};
    if (sign == "&&") return int64_t{a != 0 && b != 0};
    if (sign == "|") return a | b;
    if (sign == "^") return a ^ b;
    if (sign == "&") return a & b;
    if (sign == "==") return int64_t{a == b};
    if (sign == "!=") return int64_t{a != b};
    if (sign == "<=") return int64_t{a <= b};
    if (sign == ">=") return int64_t{a >= b};
    if (sign == "<") return int64_t{a < b};
    if (sign == ">") return int64_t{a > b};
    if (sign == "+") return Wrap(Bits(a) + Bits(b));
    if (sign == "-") return Wrap(Bits(a) - Bits(b));
    if (sign == "*") return Wrap(Bits(a) * Bits(b));
    if (b == 0) return InvalidArgument("\"{}\" divides by 0", text_);
    if (b == -1) return sign == "/" ? Wrap(0 - Bits(a)) : int64_t{0};
    return sign == "/" ? a / b : a % b;
  }

  const std::string& text_;
  const std::function<std::string(const std::string&)>& variable_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

absl::StatusOr<int64_t> ShellArithmetic(
    const std::string& expression,
    const std::function<std::string(const std::string& name)>& variable) {
  return ArithmeticReader(expression, variable).Read();
}

}  // namespace tandem
