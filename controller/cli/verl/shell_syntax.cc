#include "controller/cli/verl/shell_syntax.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "common/base/status.h"

namespace tandem {
namespace {

constexpr int kMaxSyntaxDepth = 100;

bool IsNameCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// The end after the bracket that closes `open` at text[at], over quotes and further brackets.
size_t EndOfBracket(const std::string& text, size_t at, char open, char close, int nested = 0) {
  int depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == open) {
      ++depth;
      ++at;
    } else if (c == close) {
      ++at;
      if (--depth == 0) return at;
    } else {
      at = EndOfPiece(text, at, nested);
    }
  }
  return text.size() + 1;
}

size_t EndOfDoubleQuotes(const std::string& text, size_t at, int nested) {
  for (++at; at < text.size();) {
    if (text[at] == '"') return at + 1;
    if (text[at] == '\\') {
      at += 2;
    } else {
      at = text[at] == '\'' ? at + 1 : EndOfPiece(text, at, nested);
    }
  }
  return text.size() + 1;
}

}  // namespace

size_t EndOfPiece(const std::string& text, size_t at, int depth) {
  const size_t unclosed = text.size() + 1;
  if (depth > kMaxSyntaxDepth) return unclosed;
  const char next = at + 1 < text.size() ? text[at + 1] : '\0';
  switch (text[at]) {
    case '\\':
      return std::min(at + 2, unclosed);
    case '\'':
    case '`': {
      const size_t end = text.find(text[at], at + 1);
      return end == std::string::npos ? unclosed : end + 1;
    }
    case '"':
      return EndOfDoubleQuotes(text, at, depth + 1);
    case '$':
      if (next == '(') return EndOfBracket(text, at + 1, '(', ')', depth + 1);
      if (next == '{') return EndOfBracket(text, at + 1, '{', '}', depth + 1);
      return at + 1;
    default:
      return at + 1;
  }
}

bool IsShellName(const std::string& text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
         std::all_of(text.begin(), text.end(), IsNameCharacter);
}

namespace {

using Kind = ShellNode::Kind;
using NodeList = std::vector<ShellNode>;

class ShellParser {
 public:
  explicit ShellParser(const std::string& text) : text_(text) {}

  absl::StatusOr<NodeList> Script() {
    TANDEM_ASSIGN_OR_RETURN(NodeList list, List({}));
    if (at_ < text_.size()) return Fail("unexpected " + text_.substr(at_, 1));
    return list;
  }

 private:
  absl::Status Fail(const std::string& what) const {
    return InvalidArgument("{}: {}", line_, what);
  }

  char Peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool Sees(std::string_view what) const {
    return std::string_view(text_).substr(at_).starts_with(what);
  }

  void Advance(size_t end) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    at_ = end;
  }

  bool Take(std::string_view what) {
    SkipBlanks();
    if (!Sees(what)) return false;
    Advance(at_ + what.size());
    return true;
  }

  // Spaces, continued lines and comments, but no end of a line.
  void SkipBlanks() {
    while (at_ < text_.size()) {
      if (Peek() == ' ' || Peek() == '\t' || Peek() == '\r') {
        ++at_;
      } else if (Peek() == '\\' && Peek(1) == '\n') {
        Advance(at_ + 2);
      } else if (Peek() == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else {
        return;
      }
    }
  }

  void EndLine() {
    Advance(at_ + 1);
    for (const std::string& end : std::exchange(here_documents_, {})) {
      while (at_ < text_.size()) {
        const size_t line_end = std::min(text_.find('\n', at_), text_.size());
        std::string line = text_.substr(at_, line_end - at_);
        line.erase(0, std::min(line.find_first_not_of('\t'), line.size()));
        Advance(std::min(line_end + 1, text_.size()));
        if (line == end) break;
      }
    }
  }

  void SkipLines() {
    for (SkipBlanks(); Peek() == '\n' || Peek() == ';'; SkipBlanks()) {
      if (Peek() == '\n') {
        EndLine();
      } else if (Peek(1) == ';') {
        return;  // the end of a case
      } else {
        ++at_;
      }
    }
  }

  // The raw word here, "" where there is none. In [[ ]] more characters are parts of words.
  absl::StatusOr<std::string> Word(std::string_view ends = " \t\r\n;&|<>()") {
    const size_t begin = at_;
    size_t end = at_;
    while (end < text_.size() && ends.find(text_[end]) == std::string_view::npos) {
      if (text_[end] == '\\' && end + 1 < text_.size() && text_[end + 1] == '\n' && end == begin)
        break;
      end = EndOfPiece(text_, end);
    }
    if (end > text_.size()) return Fail("a quote or bracket is not closed");
    Advance(end);
    return text_.substr(begin, end - begin);
  }

  // The word here without taking it: a reserved word is found so.
  std::string PeekWord() {
    const size_t at = at_;
    const int line = line_;
    const auto word = Word();
    at_ = at;
    line_ = line;
    return word.value_or("");
  }

  bool TakeReserved(const std::string& word) {
    SkipLines();
    if (PeekWord() != word) return false;
    Advance(at_ + word.size());
    return true;
  }

  absl::StatusOr<NodeList> List(const std::vector<std::string>& ends) {
    if (++depth_ > kMaxSyntaxDepth) return Fail("commands are nested too deeply");
    NodeList list;
    while (true) {
      SkipLines();
      const std::string word = PeekWord();
      if (at_ >= text_.size() || Peek() == ')' || Sees(";;") ||
          std::find(ends.begin(), ends.end(), word) != ends.end()) {
        break;
      }
      TANDEM_ASSIGN_OR_RETURN(ShellNode node, AndOr());
      list.push_back(std::move(node));
      SkipBlanks();
      if (Peek() == '&') ++at_;  // in the background
    }
    --depth_;
    return list;
  }

  absl::StatusOr<ShellNode> AndOr() {
    TANDEM_ASSIGN_OR_RETURN(ShellNode left, Pipe());
    while (true) {
      const bool is_and = Take("&&");
      if (!is_and && !Take("||")) return left;
      SkipLines();
      TANDEM_ASSIGN_OR_RETURN(ShellNode right, Pipe());
      ShellNode both{.kind = is_and ? Kind::kAnd : Kind::kOr, .line = left.line};
      both.parts.push_back({std::move(left)});
      both.parts.push_back({std::move(right)});
      left = std::move(both);
    }
  }

  absl::StatusOr<ShellNode> Pipe() {
    SkipBlanks();
    if (Peek() == '!' && (Peek(1) == ' ' || Peek(1) == '\t')) {
      ++at_;
      if (++depth_ > kMaxSyntaxDepth) return Fail("commands are nested too deeply");
      TANDEM_ASSIGN_OR_RETURN(ShellNode inner, Pipe());
      --depth_;
      ShellNode negated{.kind = Kind::kNot, .line = inner.line};
      negated.parts.push_back({std::move(inner)});
      return negated;
    }
    TANDEM_ASSIGN_OR_RETURN(ShellNode first, Command());
    ShellNode group{.kind = Kind::kGroup, .line = first.line};
    group.parts.push_back({std::move(first)});
    for (SkipBlanks(); Peek() == '|' && Peek(1) != '|'; SkipBlanks()) {
      at_ += Peek(1) == '&' ? 2 : 1;
      SkipLines();
      TANDEM_ASSIGN_OR_RETURN(ShellNode next, Command());
      group.parts[0].push_back(std::move(next));
    }
    if (group.parts[0].size() > 1) return group;
    ShellNode alone = std::move(group.parts[0][0]);
    return alone;
  }

  absl::StatusOr<ShellNode> Command() {
    SkipBlanks();
    const int line = line_;
    const std::string word = PeekWord();
    absl::StatusOr<ShellNode> node = ShellNode{};
    if (Sees("((")) {
      node = Arithmetic();
    } else if (Peek() == '(') {
      ++at_;
      node = Body(Kind::kGroup, {}, "");
      if (node.ok() && !Take(")")) return Fail("( is not closed");
    } else if (word == "{") {
      Advance(at_ + 1);
      node = Body(Kind::kGroup, {"}"}, "}");
    } else if (word == "if") {
      node = If();
    } else if (word == "case") {
      node = Case();
    } else if (word == "for") {
      node = For();
    } else if (word == "while" || word == "until") {
      node = While(word);
    } else if (word == "[[") {
      node = Test();
    } else if (word == "function" || IsFunction(word)) {
      node = Function(word);
    } else {
      return Simple();
    }
    if (!node.ok()) return node;
    node->line = line;
    TANDEM_RETURN_IF_ERROR(Redirections());
    return node;
  }

  bool IsFunction(const std::string& word) const {
    if (!IsShellName(word)) return false;
    size_t at = at_ + word.size();
    while (at < text_.size() && text_[at] == ' ') ++at;
    if (at >= text_.size() || text_[at] != '(') return false;
    for (++at; at < text_.size() && text_[at] == ' ';) ++at;
    return at < text_.size() && text_[at] == ')';
  }

  // A list and the word that closes it.
  absl::StatusOr<ShellNode> Body(Kind kind,
                                 const std::vector<std::string>& ends,
                                 const std::string& close) {
    ShellNode node{.kind = kind};
    TANDEM_ASSIGN_OR_RETURN(NodeList list, List(ends));
    node.parts.push_back(std::move(list));
    if (!close.empty() && !TakeReserved(close)) return Fail(close + " is missing");
    return node;
  }

  absl::StatusOr<ShellNode> Arithmetic() {
    const size_t end = EndOfBracket(text_, at_, '(', ')');
    if (end > text_.size()) return Fail("(( is not closed");
    ShellNode node{.kind = Kind::kArithmetic};
    node.words.push_back({text_.substr(at_ + 2, end - at_ - 4), line_});
    Advance(end);
    return node;
  }

  absl::StatusOr<ShellNode> If() {
    ShellNode node{.kind = Kind::kIf};
    Advance(at_ + 2);
    while (true) {
      TANDEM_ASSIGN_OR_RETURN(NodeList condition, List({"then"}));
      if (!TakeReserved("then")) return Fail("then is missing");
      TANDEM_ASSIGN_OR_RETURN(NodeList body, List({"elif", "else", "fi"}));
      node.parts.push_back(std::move(condition));
      node.parts.push_back(std::move(body));
      if (TakeReserved("elif")) continue;
      if (TakeReserved("else")) {
        TANDEM_ASSIGN_OR_RETURN(NodeList otherwise, List({"fi"}));
        node.parts.push_back(std::move(otherwise));
      }
      if (!TakeReserved("fi")) return Fail("fi is missing");
      return node;
    }
  }

  absl::StatusOr<ShellNode> Case() {
    ShellNode node{.kind = Kind::kCase};
    Advance(at_ + 4);
    SkipBlanks();
    const int line = line_;
    TANDEM_ASSIGN_OR_RETURN(std::string subject, Word());
    node.words.push_back({std::move(subject), line});
    if (!TakeReserved("in")) return Fail("in is missing");
    while (!TakeReserved("esac")) {
      if (at_ >= text_.size()) return Fail("esac is missing");
      Take("(");
      std::vector<ShellWord> patterns;
      do {
        SkipBlanks();
        TANDEM_ASSIGN_OR_RETURN(std::string pattern, Word());
        patterns.push_back({std::move(pattern), line_});
      } while (Take("|"));
      if (!Take(")")) return Fail("a pattern of case is not closed");
      TANDEM_ASSIGN_OR_RETURN(NodeList body, List({"esac"}));
      node.patterns.push_back(std::move(patterns));
      node.parts.push_back(std::move(body));
      Take(";;");
    }
    return node;
  }

  absl::StatusOr<ShellNode> For() {
    ShellNode node{.kind = Kind::kFor};
    Advance(at_ + 3);
    SkipBlanks();
    TANDEM_ASSIGN_OR_RETURN(std::string name, Word());
    if (!IsShellName(name)) return Fail("this kind of for is not read");
    node.words.push_back({std::move(name), line_});
    if (TakeReserved("in")) {
      for (SkipBlanks(); at_ < text_.size() && Peek() != '\n' && Peek() != ';'; SkipBlanks()) {
        const int line = line_;
        TANDEM_ASSIGN_OR_RETURN(std::string word, Word());
        if (word.empty()) return Fail("unexpected " + text_.substr(at_, 1));
        node.words.push_back({std::move(word), line});
      }
    } else {
      node.words.push_back({"\"$@\"", line_});
    }
    if (!TakeReserved("do")) return Fail("do is missing");
    TANDEM_ASSIGN_OR_RETURN(NodeList body, List({"done"}));
    if (!TakeReserved("done")) return Fail("done is missing");
    node.parts.push_back(std::move(body));
    return node;
  }

  absl::StatusOr<ShellNode> While(const std::string& word) {
    ShellNode node{.kind = Kind::kWhile, .until = word == "until"};
    Advance(at_ + word.size());
    TANDEM_ASSIGN_OR_RETURN(NodeList condition, List({"do"}));
    if (!TakeReserved("do")) return Fail("do is missing");
    TANDEM_ASSIGN_OR_RETURN(NodeList body, List({"done"}));
    if (!TakeReserved("done")) return Fail("done is missing");
    node.parts = {std::move(condition), std::move(body)};
    return node;
  }

  absl::StatusOr<ShellNode> Function(std::string name) {
    ShellNode node{.kind = Kind::kFunction};
    if (name == "function") {
      Advance(at_ + name.size());
      SkipBlanks();
      TANDEM_ASSIGN_OR_RETURN(name, Word());
    } else {
      Advance(at_ + name.size());
    }
    if (Take("(") && !Take(")")) return Fail("a function is written name() { ... }");
    node.words.push_back({name, line_});
    SkipLines();
    if (++depth_ > kMaxSyntaxDepth) return Fail("commands are nested too deeply");
    TANDEM_ASSIGN_OR_RETURN(ShellNode body, Command());
    --depth_;
    node.parts.push_back({std::move(body)});
    return node;
  }

  // [[ ... ]], in which && and < are words.
  absl::StatusOr<ShellNode> Test() {
    ShellNode node;
    while (true) {
      SkipBlanks();
      if (at_ >= text_.size()) return Fail("]] is missing");
      if (Peek() == '\n') {
        EndLine();
        continue;
      }
      const int line = line_;
      std::string word;
      for (const char* sign : {"&&", "||", "(", ")", "<", ">"}) {
        if (Sees(sign)) word = sign;
      }
      if (word.empty()) {
        TANDEM_ASSIGN_OR_RETURN(word, Word());
        if (word.empty()) return Fail("unexpected " + text_.substr(at_, 1));
      } else {
        at_ += word.size();
      }
      node.words.push_back({word, line});
      if (word == "]]") return node;
    }
  }

  absl::StatusOr<ShellNode> Simple() {
    ShellNode node{.line = line_};
    while (true) {
      TANDEM_RETURN_IF_ERROR(Redirections());
      SkipBlanks();
      const int line = line_;
      TANDEM_ASSIGN_OR_RETURN(const std::string word, Word());
      if (word.empty()) break;
      const bool digits =
          std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
      if (digits && (Peek() == '<' || Peek() == '>')) continue;  // 2>&1
      if (Peek() == '(' && word.back() == '=') {
        TANDEM_RETURN_IF_ERROR(Array(word, node));
      } else if (node.words.empty() && IsAssignment(word)) {
        AddAssignment(word, line, node);
      } else {
        node.words.push_back({word, line});
      }
    }
    if (node.words.empty() && node.assignments.empty() && at_ < text_.size() && Peek() != '\n' &&
        Peek() != ';' && Peek() != ')') {
      return Fail("unexpected " + text_.substr(at_, 1));
    }
    return node;
  }

  static std::string NameOf(const std::string& word) {
    std::string name = word.substr(0, word.find('='));
    if (name.ends_with('+')) name.pop_back();
    return name;
  }
  static bool IsAssignment(const std::string& word) {
    return word.find('=') != std::string::npos && IsShellName(NameOf(word));
  }
  static void AddAssignment(const std::string& word, int line, ShellNode& node) {
    const size_t equals = word.find('=');
    node.assignments.push_back({.name = NameOf(word),
                                .append = equals > 0 && word[equals - 1] == '+',
                                .words = {{word.substr(equals + 1), line}}});
  }

  absl::Status Array(const std::string& word, ShellNode& node) {
    if (!IsAssignment(word)) return Fail("unexpected (");
    ShellAssignment array{
        .name = NameOf(word), .append = word.ends_with("+="), .is_array = true, .words = {}};
    ++at_;
    while (true) {
      SkipBlanks();
      if (at_ >= text_.size()) return Fail("( of " + array.name + " is not closed");
      if (Peek() == '\n') {
        EndLine();
        continue;
      }
      if (Take(")")) break;
      const int line = line_;
      TANDEM_ASSIGN_OR_RETURN(std::string entry, Word());
      if (entry.empty()) return Fail("unexpected " + text_.substr(at_, 1));
      array.words.push_back({std::move(entry), line});
    }
    node.assignments.push_back(std::move(array));
    return absl::OkStatus();
  }

  // Takes > file, 2>&1, < file, << END and >(...), which say nothing about overrides.
  absl::Status Redirections() {
    while (true) {
      SkipBlanks();
      if (Sees("&>")) ++at_;
      if (Peek() != '<' && Peek() != '>') return absl::OkStatus();
      const bool here = Sees("<<") && !Sees("<<<");
      while (Peek() == '<' || Peek() == '>' || Peek() == '&' || (here && Peek() == '-')) ++at_;
      SkipBlanks();
      if (Peek() == '(') {
        const size_t end = EndOfBracket(text_, at_, '(', ')');
        if (end > text_.size()) return Fail("( is not closed");
        Advance(end);
        continue;
      }
      TANDEM_ASSIGN_OR_RETURN(std::string target, Word());
      if (!here) continue;
      std::erase_if(target, [](char c) { return c == '"' || c == '\'' || c == '\\'; });
      here_documents_.push_back(target);
    }
  }

  const std::string& text_;
  size_t at_ = 0;
  int line_ = 1;
  int depth_ = 0;
  std::vector<std::string> here_documents_;  // the words that end those begun in this line
};

}  // namespace

absl::StatusOr<std::vector<ShellNode>> ParseShell(const std::string& text) {
  return ShellParser(text).Script();
}

}  // namespace tandem
