// The part of bash's grammar that training scripts use, read into a tree. Nothing is run.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace tandem {

// A word as it is written, with its quotes and expansions.
struct ShellWord {
  std::string raw;
  int line = 0;
};

// NAME=word, NAME+=word, NAME=(words) or NAME+=(words).
struct ShellAssignment {
  std::string name;
  bool append = false;
  bool is_array = false;
  std::vector<ShellWord> words;  // one, unless it is an array
};

struct ShellNode {
  enum class Kind {
    kSimple,      // assignments, words; [[ ... ]] too
    kArithmetic,  // (( words[0] ))
    kIf,          // parts: condition, body, condition, body, ..., maybe the body of else
    kCase,        // words[0]; parts[i] is the body of patterns[i]
    kFor,         // words[0] is the variable, the others are its values; parts[0]
    kWhile,       // parts: condition, body
    kGroup,       // parts[0], one after the other: { } ( ) and the commands of a pipe
    kAnd,         // parts[0] && parts[1]
    kOr,          // parts[0] || parts[1]
    kNot,         // ! parts[0]
    kFunction,    // words[0] is the name; parts[0]
  };
  Kind kind = Kind::kSimple;
  int line = 0;
  bool until = false;  // of kWhile: as long as the condition does not hold
  std::vector<ShellAssignment> assignments;
  std::vector<ShellWord> words;
  std::vector<std::vector<ShellNode>> parts;
  std::vector<std::vector<ShellWord>> patterns;
};

// InvalidArgument, beginning with the line: something that bash would not read, or that is nested
// deeper than a script of people is.
absl::StatusOr<std::vector<ShellNode>> ParseShell(const std::string& text);

// The end of what begins at text[at]: a quoted text, $(...), ${...}, $((...)) or `...`, or of one
// character that begins none of these. text.size() + 1: it is not closed, or nested too deeply.
size_t EndOfPiece(const std::string& text, size_t at, int depth = 0);

// Whether `text` is a name of a variable.
bool IsShellName(const std::string& text);

}  // namespace tandem
