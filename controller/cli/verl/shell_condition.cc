#include "controller/cli/verl/shell_condition.h"

#include <cstdint>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include <absl/strings/numbers.h>
#include <fnmatch.h>

#include "common/base/status.h"

namespace tandem {
namespace {

constexpr int kMaxDepth = 40;  // of ! and parentheses

bool IsComparison(const std::string& sign) {
  static const std::set<std::string> kSigns = {"=",   "==",  "!=",  "<",   ">",   "-eq",
                                               "-ne", "-lt", "-le", "-gt", "-ge", "=~"};
  return kSigns.contains(sign);
}

absl::StatusOr<bool> Compare(const std::string& a, const std::string& sign, const std::string& b) {
  if (sign == "=" || sign == "==") return MatchesShellPattern(b, a) || a == b;
  if (sign == "!=") return !MatchesShellPattern(b, a) && a != b;
  if (sign == "<") return a < b;
  if (sign == ">") return a > b;
  if (sign == "=~") return InvalidArgument("=~ is not read here");
  int64_t x = 0, y = 0;
  if (!absl::SimpleAtoi(a, &x) || !absl::SimpleAtoi(b, &y)) {
    return InvalidArgument("\"{}\" {} \"{}\" compares what is no whole number", a, sign, b);
  }
  if (sign == "-eq") return x == y;
  if (sign == "-ne") return x != y;
  if (sign == "-lt") return x < y;
  if (sign == "-le") return x <= y;
  return sign == "-gt" ? x > y : x >= y;
}

// Reads the words from the left on, with -o or || binding less than -a or &&.
class Condition {
 public:
  Condition(std::vector<std::string> words, std::function<bool(const std::string& name)> is_set)
      : words_(std::move(words)), is_set_(std::move(is_set)) {}

  absl::StatusOr<bool> Holds() {
    TANDEM_ASSIGN_OR_RETURN(const bool holds, Or(0));
    if (at_ != words_.size()) return InvalidArgument("a condition that is not read here");
    return holds;
  }

 private:
  bool IsNext(const std::string& one, const std::string& other) const {
    return at_ < words_.size() && (words_[at_] == one || words_[at_] == other);
  }

  absl::StatusOr<bool> Or(int depth) {
    TANDEM_ASSIGN_OR_RETURN(bool holds, And(depth));
    while (IsNext("||", "-o")) {
      ++at_;
      TANDEM_ASSIGN_OR_RETURN(const bool other, And(depth));
      holds = holds || other;
    }
    return holds;
  }

  absl::StatusOr<bool> And(int depth) {
    TANDEM_ASSIGN_OR_RETURN(bool holds, One(depth));
    while (IsNext("&&", "-a")) {
      ++at_;
      TANDEM_ASSIGN_OR_RETURN(const bool other, One(depth));
      holds = holds && other;
    }
    return holds;
  }

  absl::StatusOr<bool> One(int depth) {
    if (depth > kMaxDepth) return InvalidArgument("a condition is nested too deeply");
    const size_t left = words_.size() - at_;
    if (left == 0) return false;  // [ ] is false
    const std::string& first = words_[at_];
    if (left >= 3 && IsComparison(words_[at_ + 1])) {
      at_ += 3;
      return Compare(first, words_[at_ - 2], words_[at_ - 1]);
    }
    if (first == "!") {
      ++at_;
      TANDEM_ASSIGN_OR_RETURN(const bool inner, One(depth + 1));
      return !inner;
    }
    if (first == "(") return InParentheses(depth + 1);
    if (left >= 2 && first.size() == 2 && first[0] == '-') {
      at_ += 2;
      return Unary(first[1], words_[at_ - 1]);
    }
    ++at_;
    return !first.empty();
  }

  absl::StatusOr<bool> InParentheses(int depth) {
    ++at_;
    TANDEM_ASSIGN_OR_RETURN(const bool inner, Or(depth));
    if (!IsNext(")", ")")) return InvalidArgument("a condition lacks )");
    ++at_;
    return inner;
  }

  absl::StatusOr<bool> Unary(char sign, const std::string& operand) const {
    std::error_code error;
    switch (sign) {
      case 'n':
        return !operand.empty();
      case 'z':
        return operand.empty();
      case 'v':
        return is_set_(operand);
      case 'e':
        return std::filesystem::exists(operand, error);
      case 'f':
        return std::filesystem::is_regular_file(operand, error);
      case 'd':
        return std::filesystem::is_directory(operand, error);
      default:
        return InvalidArgument("the condition -{} is not read here", sign);
    }
  }

  const std::vector<std::string> words_;  // without the command and the closing bracket
  const std::function<bool(const std::string& name)> is_set_;
  size_t at_ = 0;
};

}  // namespace

bool MatchesShellPattern(const std::string& pattern, const std::string& text) {
  return fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

absl::StatusOr<bool> ShellCondition(const std::vector<std::string>& words,
                                    const std::function<bool(const std::string& name)>& is_set) {
  size_t end = words.size();
  if (end > 1 && (words.back() == "]" || words.back() == "]]")) --end;
  return Condition({words.begin() + 1, words.begin() + static_cast<std::ptrdiff_t>(end)}, is_set)
      .Holds();
}

}  // namespace tandem
