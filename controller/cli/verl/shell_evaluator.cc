// It is one file because commands and expansions share the variables that they set and read.
#include "controller/cli/verl/shell_evaluator.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <fmt/format.h>

#include "common/base/status.h"
#include "controller/cli/verl/shell_arithmetic.h"
#include "controller/cli/verl/shell_condition.h"
#include "controller/cli/verl/shell_syntax.h"

namespace tandem {
namespace {

constexpr size_t kMaxScript = size_t{1} << 18;  // bytes
constexpr size_t kMaxText = size_t{1} << 16;    // bytes of one value
constexpr int kMaxCommands = 100000;
constexpr int kOnCommandLine = -1;  // the line of $1, $2, ...
constexpr int kMaxNesting = 40;     // of expansions and function calls

// A text, or why it is not known: "the output of `nproc`".
struct Text {
  std::string text;
  std::string unknown;
  int line = 0;
};

struct Variable {
  std::vector<Text> values;
  bool is_array = false;
};

enum class Truth { kYes, kNo, kNotRun };

// How the commands that follow are skipped: up to the loop's next turn, its end, or the function's.
enum class Jump { kNone, kContinue, kBreak, kReturn };

// What $ and what follows it stand for.
struct Expansion {
  std::vector<Text> values;
  bool separate = false;  // each value is a word of its own, as of "$@"
  bool is_list = false;   // of $@, $* or all of an array, which a range counts by value
};

class ScriptEvaluator {
 public:
  explicit ScriptEvaluator(const ScriptContext& context) : context_(context) {
    for (const std::string& argument : context.arguments)
      positional_.push_back({.text = argument, .line = kOnCommandLine});
  }

  absl::StatusOr<ScriptCommand> Evaluate(const std::string& script) {
    if (script.size() > kMaxScript) {
      return InvalidArgument(" a script of more than {} bytes is not read", kMaxScript);
    }
    TANDEM_ASSIGN_OR_RETURN(const std::vector<ShellNode> nodes, ParseShell(script));
    TANDEM_RETURN_IF_ERROR(RunList(nodes).status());
    if (found_.empty()) return NoCommand();
    if (found_.size() > 1) {
      return InvalidArgument("{}: starts verl.trainer.main_ppo again, after line {}: keep one",
                             found_[1].line, found_[0].line);
    }
    found_[0].notes.assign(notes_.begin(), notes_.end());
    for (const std::string& argument : context_.arguments) {
      if (!read_.contains(argument)) found_[0].unread.push_back(argument);
    }
    return std::move(found_[0]);
  }

 private:
  absl::Status Fail(const std::string& what) const {
    return InvalidArgument("{}: {}", line_, what);
  }

  absl::Status NoCommand() const {
    if (exit_line_ > 0) {
      return InvalidArgument("{}: the script ends here, before it starts verl.trainer.main_ppo{}",
                             exit_line_, last_echo_.empty() ? "" : ": " + last_echo_);
    }
    if (!other_entry_.empty()) {
      return InvalidArgument(" it starts {}, not verl.trainer.main_ppo, whose keys are known here",
                             other_entry_);
    }
    return InvalidArgument(" no command of it starts verl.trainer.main_ppo");
  }

  absl::Status Unknown(const std::string& reason, const std::string& user) const {
    return Fail(
        fmt::format("{} needs {}, which is not run: set the variable that it is for, as in "
                    "`NAME=VALUE tandemctl config from-verl ...`, or write the value into "
                    "the script",
                    user, reason));
  }

  // ---- commands

  absl::StatusOr<Truth> RunList(const std::vector<ShellNode>& list) {
    Truth last = Truth::kYes;
    for (const ShellNode& node : list) {
      if (Skips()) break;
      TANDEM_ASSIGN_OR_RETURN(last, Run(node));
      last_truth_ = last;
    }
    return last;
  }

  // Whether the rest of a list is not reached.
  bool Skips() const { return exit_line_ > 0 || jump_ != Jump::kNone; }

  absl::StatusOr<Truth> Run(const ShellNode& node) {
    if (++commands_ > kMaxCommands) return Fail("the script makes no end");
    line_ = node.line;
    switch (node.kind) {
      case ShellNode::Kind::kSimple:
        return RunSimple(node);
      case ShellNode::Kind::kArithmetic: {
        TANDEM_ASSIGN_OR_RETURN(const Text value, Arithmetic(node.words[0].raw));
        if (!value.unknown.empty()) return Unknown(value.unknown, "a condition");
        return value.text != "0" ? Truth::kYes : Truth::kNo;
      }
      case ShellNode::Kind::kIf:
        return RunIf(node);
      case ShellNode::Kind::kCase:
        return RunCase(node);
      case ShellNode::Kind::kFor:
        return RunFor(node);
      case ShellNode::Kind::kWhile:
        return RunWhile(node);
      case ShellNode::Kind::kGroup:
        return RunList(node.parts[0]);
      case ShellNode::Kind::kAnd:
      case ShellNode::Kind::kOr: {
        TANDEM_ASSIGN_OR_RETURN(const Truth left, RunList(node.parts[0]));
        if (Skips()) return left;
        const bool is_and = node.kind == ShellNode::Kind::kAnd;
        if (left == Truth::kNotRun) {
          notes_.insert(
              fmt::format("line {}: a command that is not run is taken to succeed", node.line));
        }
        return (left != Truth::kNo) == is_and ? RunList(node.parts[1]) : left;
      }
      case ShellNode::Kind::kNot: {
        TANDEM_ASSIGN_OR_RETURN(const Truth inner, RunList(node.parts[0]));
        return inner == Truth::kYes ? Truth::kNo : inner == Truth::kNo ? Truth::kYes : inner;
      }
      case ShellNode::Kind::kFunction:
        functions_[node.words[0].raw] = &node.parts[0];
        return Truth::kYes;
    }
    return Truth::kYes;
  }

  absl::StatusOr<bool> Holds(const std::vector<ShellNode>& condition) {
    TANDEM_ASSIGN_OR_RETURN(const Truth truth, RunList(condition));
    if (truth == Truth::kNotRun) {
      return Fail(
          "a condition depends on a command, which is not run: take the branch out that "
          "does not apply, or test a variable");
    }
    return truth == Truth::kYes;
  }

  absl::StatusOr<Truth> RunIf(const ShellNode& node) {
    size_t part = 0;
    for (; part + 1 < node.parts.size(); part += 2) {
      TANDEM_ASSIGN_OR_RETURN(const bool holds, Holds(node.parts[part]));
      if (Skips()) return Truth::kYes;
      if (holds) return RunList(node.parts[part + 1]);
    }
    return part < node.parts.size() ? RunList(node.parts[part]) : Truth::kYes;
  }

  absl::StatusOr<Truth> RunCase(const ShellNode& node) {
    TANDEM_ASSIGN_OR_RETURN(const Text subject, ExpandJoined(node.words[0].raw));
    if (!subject.unknown.empty()) return Unknown(subject.unknown, "a condition");
    for (size_t i = 0; i < node.parts.size(); ++i) {
      for (const ShellWord& word : node.patterns[i]) {
        TANDEM_ASSIGN_OR_RETURN(const Text pattern, ExpandJoined(word.raw));
        if (!pattern.unknown.empty()) return Unknown(pattern.unknown, "a condition");
        if (MatchesShellPattern(pattern.text, subject.text)) return RunList(node.parts[i]);
      }
    }
    return Truth::kYes;
  }

  absl::StatusOr<Truth> RunFor(const ShellNode& node) {
    std::vector<Text> values;
    for (size_t i = 1; i < node.words.size(); ++i) {
      TANDEM_RETURN_IF_ERROR(Expand(node.words[i], values));
    }
    ++loops_;
    for (const Text& value : values) {
      if (exit_line_ > 0) break;
      variables_[node.words[0].raw] = {.values = {value}};
      TANDEM_RETURN_IF_ERROR(RunList(node.parts[0]).status());
      if (EndsLoop()) break;
    }
    --loops_;
    return Truth::kYes;
  }

  // After a loop's turn: whether `break`, `return` or a loop further out ends the loop.
  bool EndsLoop() {
    if (jump_ == Jump::kNone || jump_ == Jump::kReturn) return jump_ == Jump::kReturn;
    if (--jump_loops_ > 0) return true;
    return std::exchange(jump_, Jump::kNone) == Jump::kBreak;
  }

  absl::StatusOr<Truth> RunWhile(const ShellNode& node) {
    ++loops_;
    while (exit_line_ == 0) {
      TANDEM_ASSIGN_OR_RETURN(const bool holds, Holds(node.parts[0]));
      if (!Skips()) {
        if (holds == node.until) break;
        TANDEM_RETURN_IF_ERROR(RunList(node.parts[1]).status());
      }
      if (EndsLoop()) break;
    }
    --loops_;
    return Truth::kYes;
  }

  absl::StatusOr<Truth> RunSimple(const ShellNode& node) {
    for (const ShellAssignment& assignment : node.assignments) {
      TANDEM_RETURN_IF_ERROR(Assign(assignment));
    }
    std::vector<Text> words;
    for (const ShellWord& word : node.words) {
      line_ = word.line;
      TANDEM_RETURN_IF_ERROR(Expand(word, words));
    }
    line_ = node.line;
    if (words.empty()) return Truth::kYes;
    if (!words[0].unknown.empty()) return Truth::kNotRun;
    const auto called = functions_.find(words[0].text);
    if (called != functions_.end()) return Call(*called->second, words);
    if (TakeEntry(words, node.line)) return CheckEntry();
    return Builtin(words[0].text, node, words);
  }

  // A function's $1, $2, ... are its own.
  absl::StatusOr<Truth> Call(const std::vector<ShellNode>& body, const std::vector<Text>& words) {
    if (++nesting_ > kMaxNesting) return Fail("functions call each other too deeply");
    std::vector<Text> arguments(words.begin() + 1, words.end());
    arguments.swap(positional_);
    const int loops = std::exchange(loops_, 0);
    ++calls_;
    auto result = RunList(body);
    --calls_;
    loops_ = loops;
    arguments.swap(positional_);
    --nesting_;
    if (result.ok() && std::exchange(jump_, Jump::kNone) == Jump::kReturn) result = returned_;
    return result;
  }

  // `break`, `continue` and their number of loops, 1 unless it is given.
  absl::StatusOr<Truth> LeaveLoop(const std::vector<Text>& words) {
    const std::string& name = words[0].text;
    if (loops_ == 0) return Fail(name + " is outside of a loop of its function: take it out");
    TANDEM_ASSIGN_OR_RETURN(const int64_t loops, NumberAfter(words, 1));
    if (loops < 1) return Fail(name + " takes a number of loops, 1 or more");
    jump_ = name == "break" ? Jump::kBreak : Jump::kContinue;
    jump_loops_ = std::min<int64_t>(loops, loops_);
    return Truth::kYes;
  }

  absl::StatusOr<Truth> Return(const std::vector<Text>& words) {
    if (calls_ == 0) return Fail("return is outside of a function: write exit, or take it out");
    returned_ = last_truth_;
    if (words.size() > 1) {
      TANDEM_ASSIGN_OR_RETURN(const int64_t status, NumberAfter(words, 0));
      returned_ = status == 0 ? Truth::kYes : Truth::kNo;
    }
    jump_ = Jump::kReturn;
    return returned_;
  }

  absl::StatusOr<Truth> Shift(const std::vector<Text>& words) {
    TANDEM_ASSIGN_OR_RETURN(const int64_t count, NumberAfter(words, 1));
    if (count < 0 || count > std::ssize(positional_)) return Truth::kNo;  // as bash: none goes
    positional_.erase(positional_.begin(), positional_.begin() + count);
    return Truth::kYes;
  }

  // The number behind a command's name, or `missing`.
  absl::StatusOr<int64_t> NumberAfter(const std::vector<Text>& words, int64_t missing) const {
    if (words.size() < 2) return missing;
    int64_t number = 0;
    if (!words[1].unknown.empty()) return Unknown(words[1].unknown, words[0].text);
    if (words.size() > 2 || !absl::SimpleAtoi(words[1].text, &number)) {
      return Fail(fmt::format("{} takes one whole number", words[0].text));
    }
    return number;
  }

  absl::Status Assign(const ShellAssignment& assignment) {
    std::vector<Text> values;
    for (const ShellWord& word : assignment.words) {
      line_ = word.line;
      if (assignment.is_array) {
        TANDEM_RETURN_IF_ERROR(Expand(word, values));
      } else {
        TANDEM_ASSIGN_OR_RETURN(Text value, ExpandJoined(word.raw));
        values.push_back(std::move(value));
      }
    }
    Variable& variable = variables_[assignment.name];
    unset_.erase(assignment.name);
    if (assignment.is_array) {
      if (!assignment.append) variable.values.clear();
      variable.is_array = true;
      variable.values.insert(variable.values.end(), values.begin(), values.end());
      return CheckSize(variable);
    }
    if (assignment.append && !variable.values.empty()) {
      Append(variable.values[0], values[0]);
    } else {
      variable = {.values = std::move(values)};
    }
    return CheckSize(variable);
  }

  absl::Status CheckSize(const Variable& variable) const {
    size_t bytes = 0;
    for (const Text& value : variable.values) bytes += value.text.size() + 1;
    return bytes <= kMaxText ? absl::OkStatus() : Fail("a value is too long");
  }

  // Whether the command starts verl, whose arguments are then kept.
  bool TakeEntry(const std::vector<Text>& words, int line) {
    for (size_t i = 0; i < words.size(); ++i) {
      const std::string& word = words[i].text;
      if (word == "verl.trainer.main_ppo" || word.ends_with("verl/trainer/main_ppo.py")) {
        entry_ = {words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end()};
        entry_line_ = line;
        return true;
      }
      const bool module = i > 0 && words[i - 1].text == "-m";
      if ((module && absl::StrContains(word, "main_")) || word.starts_with("recipe."))
        other_entry_ = word;
    }
    return false;
  }

  absl::StatusOr<Truth> CheckEntry() {
    ScriptCommand command{.line = entry_line_};
    for (const Text& argument : entry_) {
      if (argument.line > 0) line_ = argument.line;
      if (!argument.unknown.empty()) return Unknown(argument.unknown, "\"" + argument.text + "\"");
      command.arguments.push_back({argument.text, std::max(argument.line, 0)});
    }
    found_.push_back(std::move(command));
    return Truth::kYes;
  }

  // Commands of the shell itself that say something about variables. All others are not run.
  absl::StatusOr<Truth> Builtin(const std::string& name,
                                const ShellNode& node,
                                const std::vector<Text>& words) {
    if (name == "[" || name == "test" || name == "[[") return Test(words);
    if (name == ":" || name == "true" || name == "set" || name == "shopt")
      return SetArguments(name, words);
    if (name == "false") return Truth::kNo;
    if (name == "export" || name == "declare" || name == "local" || name == "readonly" ||
        name == "typeset") {
      return Declare(words);
    }
    if (name == "unset") {
      for (const Text& word : words) {
        variables_.erase(word.text);
        unset_.insert(word.text);
      }
      return Truth::kYes;
    }
    if (name == "shift") return Shift(words);
    if (name == "break" || name == "continue") return LeaveLoop(words);
    if (name == "return") return Return(words);
    if (name == "echo") {
      last_echo_.clear();
      for (size_t i = 1; i < words.size(); ++i) last_echo_ += (i > 1 ? " " : "") + words[i].text;
      return Truth::kYes;
    }
    if (name == "exit") {
      exit_line_ = node.line;
      return Truth::kYes;
    }
    if (name == "source" || name == ".") {
      notes_.insert(
          fmt::format("line {}: what the file sets is not known, as it is not read", node.line));
    }
    static const std::set<std::string> kSetters = {"eval",      "read", "mapfile",
                                                   "readarray", "let",  "getopts"};
    const bool prints_into = name == "printf" && words.size() > 1 && words[1].text == "-v";
    if (kSetters.contains(name) || prints_into) {
      return Fail(name + " sets what only running it would tell: write the values into the script");
    }
    return Truth::kNotRun;
  }

  absl::StatusOr<Truth> SetArguments(const std::string& name, const std::vector<Text>& words) {
    if (name == "set" && words.size() > 1 && words[1].text == "--") {
      positional_.assign(words.begin() + 2, words.end());
    }
    return Truth::kYes;
  }

  absl::StatusOr<Truth> Declare(const std::vector<Text>& words) {
    for (size_t i = 1; i < words.size(); ++i) {
      const size_t equals = words[i].text.find('=');
      if (equals == std::string::npos) continue;
      Text value = words[i];
      const std::string name = value.text.substr(0, equals);
      value.text.erase(0, equals + 1);
      unset_.erase(name);
      variables_[name] = {.values = {std::move(value)}};
    }
    return Truth::kYes;
  }

  // ---- conditions

  absl::StatusOr<Truth> Test(const std::vector<Text>& words) {
    std::vector<std::string> parts;
    for (const Text& word : words) {
      if (!word.unknown.empty()) return Unknown(word.unknown, "a condition");
      parts.push_back(word.text);
    }
    const auto holds =
        ShellCondition(parts, [this](const std::string& name) { return Find(name).has_value(); });
    if (!holds.ok()) return Fail(std::string(holds.status().message()));
    return *holds ? Truth::kYes : Truth::kNo;
  }

  // ---- expansions

  static void Append(Text& to, const Text& more) {
    to.text += more.text;
    if (to.unknown.empty()) to.unknown = more.unknown;
  }

  // A variable of the script or the environment.
  std::optional<Variable> Find(const std::string& name) const {
    const auto found = variables_.find(name);
    if (found != variables_.end()) return found->second;
    if (unset_.contains(name)) return std::nullopt;
    const std::optional<std::string> value = context_.environment(name);
    if (!value.has_value()) return std::nullopt;
    return Variable{.values = {{.text = *value}}};
  }

  // The words that `word` stands for, added to `words`.
  absl::Status Expand(const ShellWord& word, std::vector<Text>& words) {
    std::vector<Text> fields;
    bool open = false;  // whether the last field may go on
    TANDEM_RETURN_IF_ERROR(ExpandInto(word.raw, /*split=*/true, fields, open));
    for (Text& field : fields) {
      if (field.line == 0) field.line = word.line;
      words.push_back(std::move(field));
    }
    return absl::OkStatus();
  }

  // `raw` as one text, as in an assignment.
  absl::StatusOr<Text> ExpandJoined(const std::string& raw) {
    std::vector<Text> fields;
    bool open = false;
    TANDEM_RETURN_IF_ERROR(ExpandInto(raw, /*split=*/false, fields, open));
    Text joined;
    for (size_t i = 0; i < fields.size(); ++i) {
      if (i > 0) joined.text += ' ';
      Append(joined, fields[i]);
    }
    joined.line = line_;
    return joined;
  }

  static void AddTo(const Text& piece, std::vector<Text>& fields, bool& open) {
    if (!open || fields.empty()) fields.push_back({.line = piece.line});
    Append(fields.back(), piece);
    open = true;
  }

  absl::Status ExpandInto(const std::string& raw,
                          bool split,
                          std::vector<Text>& fields,
                          bool& open) {
    if (++nesting_ > kMaxNesting) return Fail("expansions are nested too deeply");
    for (size_t at = 0; at < raw.size();) {
      const size_t end = EndOfPiece(raw, at);
      if (end > raw.size()) return Fail("a quote or bracket is not closed");
      const std::string piece = raw.substr(at, end - at);
      if (piece[0] == '\'') {
        AddTo({.text = piece.substr(1, piece.size() - 2)}, fields, open);
      } else if (piece[0] == '"') {
        TANDEM_RETURN_IF_ERROR(ExpandQuoted(piece.substr(1, piece.size() - 2), fields, open));
      } else if (piece[0] == '\\') {
        if (piece != "\\\n") AddTo({.text = piece.substr(1)}, fields, open);
      } else if (piece[0] == '$' || piece[0] == '`') {
        TANDEM_ASSIGN_OR_RETURN(const Expansion expansion, Dollar(raw, at));
        AddUnquoted(expansion, split, fields, open);
        continue;  // Dollar has moved on
      } else if (piece == "~" && at == 0 && (raw.size() == 1 || raw[1] == '/')) {
        AddTo({.text = context_.environment("HOME").value_or("~")}, fields, open);
      } else {
        AddTo({.text = piece}, fields, open);
      }
      at = end;
    }
    --nesting_;
    for (const Text& field : fields) {
      if (field.text.size() > kMaxText) return Fail("a value is too long");
    }
    return absl::OkStatus();
  }

  // Between double quotes: nothing is split, but "$@" and "${X[@]}" are words of their own.
  absl::Status ExpandQuoted(const std::string& text, std::vector<Text>& fields, bool& open) {
    bool empty_list = false;
    const size_t before = fields.size();
    if (text.empty()) AddTo({}, fields, open);
    for (size_t at = 0; at < text.size();) {
      if (text[at] == '\\' && at + 1 < text.size()) {
        const bool escapes =
            std::string_view("$`\"\\\n").find(text[at + 1]) != std::string_view::npos;
        if (text[at + 1] != '\n')
          AddTo({.text = text.substr(escapes ? at + 1 : at, escapes ? 1 : 2)}, fields, open);
        at += 2;
        continue;
      }
      if (text[at] != '$' && text[at] != '`') {
        AddTo({.text = text.substr(at, 1)}, fields, open);
        ++at;
        continue;
      }
      TANDEM_ASSIGN_OR_RETURN(const Expansion expansion, Dollar(text, at));
      if (!expansion.separate) {
        Text joined;
        for (size_t i = 0; i < expansion.values.size(); ++i) {
          if (i > 0) joined.text += ' ';
          Append(joined, expansion.values[i]);
        }
        AddTo(joined, fields, open);
        continue;
      }
      empty_list = expansion.values.empty();
      for (size_t i = 0; i < expansion.values.size(); ++i) {
        if (i > 0) open = false;
        AddTo(expansion.values[i], fields, open);
      }
    }
    // "$@" without arguments is no word, "" is one.
    if (!empty_list && fields.size() == before && !open) AddTo({}, fields, open);
    return absl::OkStatus();
  }

  static void AddUnquoted(const Expansion& expansion,
                          bool split,
                          std::vector<Text>& fields,
                          bool& open) {
    bool first = true;
    for (const Text& value : expansion.values) {
      if (!std::exchange(first, false)) open = false;
      if (!split || !value.unknown.empty()) {
        AddTo(value, fields, open);
        continue;
      }
      for (size_t at = 0; at < value.text.size();) {
        const size_t end = std::min(value.text.find_first_of(" \t\n", at), value.text.size());
        if (end > at) {
          AddTo({.text = value.text.substr(at, end - at), .line = value.line}, fields, open);
        }
        if (end < value.text.size()) open = false;
        at = end + 1;
      }
    }
  }

  // What begins with $ or ` at text[at]; moves `at` behind it.
  absl::StatusOr<Expansion> Dollar(const std::string& text, size_t& at) {
    const size_t begin = at;
    const char next = begin + 1 < text.size() ? text[begin + 1] : '\0';
    if (text[begin] == '`' || next == '(' || next == '{') {
      at = EndOfPiece(text, begin);
      if (at > text.size()) return Fail("a quote or bracket is not closed");
      const std::string piece = text.substr(begin, at - begin);
      if (text[begin] == '`') return Substitution(piece.substr(1, piece.size() - 2));
      if (next == '{') return Parameter(piece.substr(2, piece.size() - 3));
      if (piece.starts_with("$((") && piece.ends_with("))")) {
        TANDEM_ASSIGN_OR_RETURN(Text value, Arithmetic(piece.substr(3, piece.size() - 5)));
        return Expansion{.values = {std::move(value)}};
      }
      return Substitution(piece.substr(2, piece.size() - 3));
    }
    size_t end = begin + 1;
    if (next == '\'' || next == '"') {  // $'...' without its escapes
      at = end;
      return Expansion{};
    }
    if (std::isdigit(static_cast<unsigned char>(next)) != 0 ||
        std::string_view("@*#?$!-").find(next) != std::string_view::npos) {
      end = begin + (next == '\0' ? 1 : 2);
    } else {
      while (end < text.size() &&
             (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_'))
        ++end;
    }
    at = end;
    const std::string name = text.substr(begin + 1, end - begin - 1);
    if (name.empty()) return Expansion{.values = {{.text = "$"}}};
    return ValueOf(name, /*missing_is_noted=*/true);
  }

  // $(date +FORMAT) is the only command that needs no running.
  absl::StatusOr<Expansion> Substitution(const std::string& command) const {
    Text value{.unknown = fmt::format("the output of `{}`", command)};
    std::string_view format = command;
    while (format.starts_with(' ')) format.remove_prefix(1);
    if (format.starts_with("date +")) {
      format.remove_prefix(6);
      const bool quoted = format.size() >= 2 && (format[0] == '"' || format[0] == '\'') &&
                          format.back() == format[0];
      if (quoted) format = format.substr(1, format.size() - 2);
      if (format.find_first_of(" |;&$`'\"()") == std::string_view::npos) {
        value = {.text =
                     absl::FormatTime(std::string(format), context_.now, absl::LocalTimeZone())};
      }
    } else if (format == "pwd") {
      value = {.text = context_.environment("PWD").value_or("")};
    }
    return Expansion{.values = {std::move(value)}};
  }

  absl::StatusOr<Text> Arithmetic(const std::string& raw) {
    TANDEM_ASSIGN_OR_RETURN(const Text expression, ExpandJoined(raw));
    Text value{.unknown = expression.unknown};
    if (!value.unknown.empty()) return value;
    const auto number = ShellArithmetic(expression.text, [&](const std::string& name) {
      const std::optional<Variable> variable = Find(name);
      if (!variable.has_value() || variable->values.empty()) return std::string();
      if (value.unknown.empty()) value.unknown = variable->values[0].unknown;
      return variable->values[0].text;
    });
    if (!value.unknown.empty()) return value;
    if (!number.ok()) return Fail(std::string(number.status().message()));
    value.text = fmt::format("{}", *number);
    return value;
  }

  void NoteRead(const Text& argument) {
    if (argument.line == kOnCommandLine) read_.insert(argument.text);
  }

  // The values of a name, $1, $@ and their like.
  absl::StatusOr<Expansion> ValueOf(const std::string& name, bool missing_is_noted) {
    if (name == "@" || name == "*") {
      for (const Text& argument : positional_) NoteRead(argument);
      return Expansion{.values = positional_, .separate = name == "@", .is_list = true};
    }
    if (name == "#") return Expansion{.values = {{.text = fmt::format("{}", positional_.size())}}};
    if (name == "?") return Expansion{.values = {{.text = "0"}}};
    if (name == "-") return Expansion{.values = {{}}};
    if (name == "$" || name == "!") {
      return Expansion{.values = {{.unknown = "the number of a process"}}};
    }
    int64_t index = 0;
    if (absl::SimpleAtoi(name, &index)) {
      if (index == 0) return Expansion{.values = {{.unknown = "the name of the script"}}};
      if (index > std::ssize(positional_)) return Expansion{};
      const Text& argument = positional_[static_cast<size_t>(index - 1)];
      NoteRead(argument);
      return Expansion{.values = {argument}};
    }
    const std::optional<Variable> variable = Find(name);
    if (variable.has_value()) {
      if (variable->values.empty()) return Expansion{};
      return Expansion{.values = {variable->values[0]}};
    }
    if (missing_is_noted) {
      notes_.insert(fmt::format("line {}: {} is not set, and so empty", line_, name));
    }
    return Expansion{};
  }

  // ${...}, given without its braces.
  absl::StatusOr<Expansion> Parameter(std::string inner) {
    const bool counts = inner.size() > 1 && inner[0] == '#';
    if (counts) inner.erase(0, 1);
    if (inner.starts_with('!')) return Fail("${!NAME} is not read here: write the name");
    size_t end = 0;
    while (end < inner.size() &&
           (std::isalnum(static_cast<unsigned char>(inner[end])) != 0 || inner[end] == '_'))
      ++end;
    if (end == 0 && !inner.empty() &&
        std::string_view("@*#?$!-").find(inner[0]) != std::string_view::npos)
      end = 1;
    const std::string name = inner.substr(0, end);
    std::string rest = inner.substr(end);
    if (name.empty()) return Fail(fmt::format("${{{}}} is not read here", inner));
    Expansion value;
    if (rest.starts_with('[')) {
      const size_t close = rest.find(']');
      if (close == std::string::npos) return Fail("[ is not closed");
      TANDEM_ASSIGN_OR_RETURN(value, Element(name, rest.substr(1, close - 1)));
      rest.erase(0, close + 1);
    } else {
      TANDEM_ASSIGN_OR_RETURN(
          value, ValueOf(name, rest.empty() || std::string_view("%#/^,").find(rest[0]) !=
                                                   std::string_view::npos));
    }
    if (counts) {
      const size_t count = value.is_list          ? value.values.size()
                           : value.values.empty() ? 0
                                                  : value.values[0].text.size();
      return Expansion{.values = {{.text = fmt::format("{}", count)}}};
    }
    return rest.empty() ? absl::StatusOr<Expansion>(value) : Modified(name, value, rest);
  }

  // NAME[subscript]
  absl::StatusOr<Expansion> Element(const std::string& name, const std::string& subscript) {
    const std::optional<Variable> variable = Find(name);
    const std::vector<Text> values = variable.has_value() ? variable->values : std::vector<Text>{};
    if (subscript == "@" || subscript == "*") {
      return Expansion{.values = values, .separate = subscript == "@", .is_list = true};
    }
    TANDEM_ASSIGN_OR_RETURN(const Text index, Arithmetic(subscript));
    int64_t at = 0;
    if (!index.unknown.empty() || !absl::SimpleAtoi(index.text, &at)) {
      return Unknown(index.unknown, "a subscript");
    }
    if (at < 0) at += std::ssize(values);
    if (at < 0 || at >= std::ssize(values)) return Expansion{};
    return Expansion{.values = {values[static_cast<size_t>(at)]}};
  }

  // The rest of ${NAME...}: defaults, cut ends, parts.
  absl::StatusOr<Expansion> Modified(const std::string& name,
                                     const Expansion& value,
                                     const std::string& rest) {
    const bool empty_counts = rest.starts_with(':');
    const std::string op = rest.substr(empty_counts ? 1 : 0, 1);
    if (op.size() == 1 && std::string_view("-=+?").find(op[0]) != std::string_view::npos) {
      return WithDefault(name, value, op[0], empty_counts, rest.substr(empty_counts ? 2 : 1));
    }
    if (empty_counts) return Part(value, name == "@" || name == "*", rest.substr(1));
    Expansion changed = value;
    for (Text& text : changed.values) {
      TANDEM_RETURN_IF_ERROR(Change(rest, text));
    }
    return changed;
  }

  absl::StatusOr<Expansion> WithDefault(const std::string& name,
                                        const Expansion& value,
                                        char op,
                                        bool empty_counts,
                                        const std::string& word) {
    const bool blank =
        value.values.size() == 1 && value.values[0].text.empty() && value.values[0].unknown.empty();
    const bool missing = value.values.empty() || (empty_counts && blank);
    if (op == '+') {
      if (missing) return Expansion{};
    } else if (!missing) {
      return value;
    } else if (op == '?') {
      return Fail(fmt::format("{} must be set: {}", name, word));
    }
    TANDEM_ASSIGN_OR_RETURN(Text text, ExpandJoined(word));
    if (op == '=') variables_[name] = {.values = {text}};
    return Expansion{.values = {std::move(text)}};
  }

  // :offset and :offset:length, of the arguments (`positional`), an array or a text.
  absl::StatusOr<Expansion> Part(Expansion value, bool positional, const std::string& range) {
    const size_t colon = range.find(':');
    TANDEM_ASSIGN_OR_RETURN(const Text offset_text, Arithmetic(range.substr(0, colon)));
    TANDEM_ASSIGN_OR_RETURN(
        const Text length_text,
        Arithmetic(colon == std::string::npos ? "65536" : range.substr(colon + 1)));
    int64_t offset = 0, length = 0;
    if (!absl::SimpleAtoi(offset_text.text, &offset) ||
        !absl::SimpleAtoi(length_text.text, &length) || length < 0) {
      return Fail(fmt::format(":{} is not read here", range));
    }
    if (value.is_list) {
      // $1 is at offset 1 of the arguments, behind the script's name; an array begins at 0.
      if (positional) {
        value.values.insert(value.values.begin(), {.unknown = "the name of the script"});
      }
      const std::vector<Text> all = std::exchange(value.values, {});
      const int64_t first = FromEnd(offset, std::ssize(all));
      for (int64_t i = first; i < std::ssize(all) && i - first < length; ++i) {
        value.values.push_back(all[static_cast<size_t>(i)]);
      }
      return value;
    }
    for (Text& text : value.values) {
      const auto begin = static_cast<size_t>(FromEnd(offset, std::ssize(text.text)));
      text.text = text.text.substr(begin, static_cast<size_t>(length));
    }
    return value;
  }

  // An offset into `size` things, of which a negative one counts from the end; `size`: there are
  // none from there on.
  static int64_t FromEnd(int64_t offset, int64_t size) {
    if (offset < 0) offset += size;
    return offset < 0 || offset > size ? size : offset;
  }

  // %, %%, #, ##, /, //, ^^ and ,, of one text.
  absl::Status Change(const std::string& rest, Text& text) {
    if (rest == ",," || rest == "^^") {
      for (char& c : text.text) {
        c = static_cast<char>(rest[0] == ',' ? std::tolower(static_cast<unsigned char>(c))
                                             : std::toupper(static_cast<unsigned char>(c)));
      }
      return absl::OkStatus();
    }
    const char op = rest[0];
    if (op != '%' && op != '#' && op != '/')
      return Fail(fmt::format("${{...{}}} is not read here", rest));
    const bool twice = rest.size() > 1 && rest[1] == op;
    const std::string operand = rest.substr(twice ? 2 : 1);
    if (op == '/') return Replace(operand, twice, text);
    TANDEM_ASSIGN_OR_RETURN(const Text pattern, ExpandJoined(operand));
    if (!pattern.unknown.empty()) return Unknown(pattern.unknown, "a pattern");
    const size_t size = text.text.size();
    for (size_t i = 0; i <= size; ++i) {
      const size_t cut = twice ? size - i : i;  // how much is taken off
      const std::string off = op == '%' ? text.text.substr(size - cut) : text.text.substr(0, cut);
      if (!MatchesShellPattern(pattern.text, off)) continue;
      text.text = op == '%' ? text.text.substr(0, size - cut) : text.text.substr(cut);
      return absl::OkStatus();
    }
    return absl::OkStatus();
  }

  absl::Status Replace(const std::string& operand, bool all, Text& text) {
    const size_t slash = operand.find('/');
    TANDEM_ASSIGN_OR_RETURN(const Text from, ExpandJoined(operand.substr(0, slash)));
    TANDEM_ASSIGN_OR_RETURN(
        const Text to, ExpandJoined(slash == std::string::npos ? "" : operand.substr(slash + 1)));
    if (from.text.empty() || from.text.find_first_of("*?[") != std::string::npos) {
      return Fail("a pattern in ${NAME/...} is not read here");
    }
    for (size_t at = text.text.find(from.text); at != std::string::npos;
         at = text.text.find(from.text, at + to.text.size())) {
      text.text.replace(at, from.text.size(), to.text);
      if (!all || text.text.size() > kMaxText) break;
    }
    return absl::OkStatus();
  }

  const ScriptContext& context_;
  std::map<std::string, Variable> variables_;
  std::set<std::string> unset_;  // whose value in the environment does not count
  std::map<std::string, const std::vector<ShellNode>*> functions_;
  std::vector<Text> positional_;
  std::vector<Text> entry_;  // the arguments of the command that is looked at
  int entry_line_ = 0;
  std::vector<ScriptCommand> found_;
  std::set<std::string> notes_;
  std::string other_entry_;  // another module that is started
  std::string last_echo_;
  std::set<std::string> read_;  // of the command line's arguments
  Truth last_truth_ = Truth::kYes;
  Jump jump_ = Jump::kNone;
  int64_t jump_loops_ = 0;  // that `break` or `continue` still has to leave
  Truth returned_ = Truth::kYes;
  int loops_ = 0;  // around the command, of its function
  int calls_ = 0;  // of functions around the command
  int exit_line_ = 0;
  int line_ = 0;
  int commands_ = 0;
  int nesting_ = 0;
};

}  // namespace

absl::StatusOr<ScriptCommand> EvaluateScript(const std::string& script,
                                             const ScriptContext& context) {
  return ScriptEvaluator(context).Evaluate(script);
}

}  // namespace tandem
