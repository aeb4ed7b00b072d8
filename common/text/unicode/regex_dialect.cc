#include "common/text/unicode/regex_dialect.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include <absl/strings/ascii.h>

#include "common/base/status.h"
#include "common/text/unicode/properties.h"
#include "common/text/unicode/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace tandem {
namespace {

// Members of a class. Each begins and ends with a property: PCRE2 refuses a - next to one, so no
// neighbour can turn it into a range.
struct Shorthand {
  std::string_view in;
  std::string_view out;         // the complement; "" if no list of properties gives it
  std::string_view alone = {};  // further members where the shorthand is not part of a class
};

struct Dialect {
  std::string_view name;
  Shorthand space;  // \s and \S
  Shorthand word;   // \w and \W, which PCRE2 10.43 defines in another way than 10.42
};

// \s is the property White_Space. PCRE2's also holds U+180E. \w is Unicode's word character; the
// superscripts and fractions of Latin-1 are one outside a class alone.
constexpr Dialect kOniguruma = {
    .name = "Oniguruma",
    .space = {.in = "\\p{Zl}\\t-\\r\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{202F}"
                    "\\x{205F}\\x{3000}\\p{Zp}",
              .out = "\\p{L}\\x{00}-\\x{08}\\x{0E}-\\x{1F}\\x{21}-\\x{84}\\x{86}-\\x{9F}"
                     "\\x{A1}-\\x{167F}\\x{1681}-\\x{1FFF}\\x{200B}-\\x{2027}\\x{202A}-\\x{202E}"
                     "\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}\\x{3001}-\\x{10FFFF}\\p{L}"},
    .word = {.in = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}",
             .out = "",
             .alone = "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}"}};

// \s is what str.isspace is true for: White_Space and the separators U+001C to U+001F.
constexpr Dialect kPython = {
    .name = "Python",
    .space = {.in = "\\p{Zl}\\t-\\r\\x{1C}-\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}"
                    "\\x{202F}\\x{205F}\\x{3000}\\p{Zp}",
              .out = "\\p{L}\\x{00}-\\x{08}\\x{0E}-\\x{1B}\\x{21}-\\x{84}\\x{86}-\\x{9F}"
                     "\\x{A1}-\\x{167F}\\x{1681}-\\x{1FFF}\\x{200B}-\\x{2027}\\x{202A}-\\x{202E}"
                     "\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}\\x{3001}-\\x{10FFFF}\\p{L}"},
    .word = {.in = "\\p{L}_\\p{N}",
             .out =
                 "\\p{M}\\x{203F}\\x{2040}\\x{2054}\\x{FE33}\\x{FE34}\\x{FE4D}-\\x{FE4F}\\x{FF3F}"
                 "\\p{Pd}\\p{Ps}\\p{Pe}\\p{Pi}\\p{Pf}\\p{Po}\\p{S}\\p{Z}\\p{C}"}};

// By name or abbreviation, as PCRE2 knows them.
bool IsScript(const std::string& name) {
  const std::string pattern = "\\p{sc:" + name + "}";
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF, &error,
                    &offset, nullptr),
      &pcre2_code_free);
  return code != nullptr;
}

// Whether `c` may be involved in a fold to several characters: cased non-ASCII letters, and marks.
bool MayFoldToSeveral(char32_t c) {
  if (c < 0x80) return false;
  if (c < 0x370) return true;  // Latin, modifiers, combining marks
  const bool mark = IsWordCharacter(c) && !IsLetter(c) && !IsNumber(c);
  const std::string text = ToUtf8(std::u32string_view(&c, 1));
  return mark || ToUpper(text) != ToLower(text);
}

// Characters that are written in a pattern and that Oniguruma, without case, also finds as one
// other character (ß is ss, ﬆ is st), which PCRE2 does not.
bool FoldsTogether(char first, char second) {
  const std::array<char, 2> pair = {absl::ascii_tolower(first), absl::ascii_tolower(second)};
  for (const std::string_view folded : {"ss", "st", "ff", "fi", "fl"}) {
    if (folded == std::string_view(pair.data(), pair.size())) return true;
  }
  return false;
}

// Reads a pattern of the dialect from left to right and writes PCRE2's.
class Translation {
 public:
  Translation(const Dialect& dialect, std::string_view pattern)
      : dialect_(dialect), pattern_(pattern) {}

  absl::StatusOr<std::string> Run() {
    if (!IsValidUtf8(pattern_)) return InvalidArgument("a regex is not valid UTF-8");
    while (pos_ < pattern_.size()) {
      const char c = pattern_[pos_];
      if (c == '\\') {
        TANDEM_RETURN_IF_ERROR(Escape(/*in_class=*/false));
      } else if (c == '[') {
        TANDEM_RETURN_IF_ERROR(Class());
      } else if (c == '(') {
        TANDEM_RETURN_IF_ERROR(Group());
      } else if (c == '{') {
        TANDEM_RETURN_IF_ERROR(Brace());
      } else {
        TANDEM_RETURN_IF_ERROR(CheckFolding(/*in_class=*/false));
        if (c == ')' && caseless_.size() > 1) caseless_.pop_back();
        CopyCharacter();
      }
    }
    return out_;
  }

 private:
  bool oniguruma() const { return &dialect_ == &kOniguruma; }
  bool At(std::string_view text) const { return pattern_.substr(pos_).starts_with(text); }

  absl::Status Refuse(const std::string& why) const {
    return InvalidArgument("regex '{}', character {}: {}", pattern_,
                           CountCodePoints(pattern_.substr(0, pos_)) + 1, why);
  }

  void Copy(size_t count) {
    count = std::min(count, pattern_.size() - pos_);
    out_ += pattern_.substr(pos_, count);
    pos_ += count;
  }

  void CopyCharacter() {
    size_t next = pos_;
    NextCodePoint(pattern_, next);
    Copy(next - pos_);
  }

  // Up to and with `end`, or all that is left.
  void CopyThrough(std::string_view end) {
    const size_t found = pattern_.find(end, pos_);
    Copy(found == std::string_view::npos ? pattern_.size() : found + end.size() - pos_);
  }

  void Replace(size_t count, std::string_view by) {
    out_ += by;
    pos_ += count;
  }

  // `in_class`: characters of a class stand alone.
  absl::Status CheckFolding(bool in_class) const {
    if (!oniguruma() || !caseless_.back()) return absl::OkStatus();
    const bool pair = !in_class && pos_ + 1 < pattern_.size() &&
                      FoldsTogether(pattern_[pos_], pattern_[pos_ + 1]);
    size_t next = pos_;
    if (!pair && !MayFoldToSeveral(NextCodePoint(pattern_, next))) return absl::OkStatus();
    return Refuse(
        "without case, Oniguruma takes some letters for several (ß for ss, and so st, ff, fi, fl), "
        "which PCRE2 cannot: write the cases out, as in [sS][sS]");
  }

  absl::Status Escape(bool in_class) {
    if (pos_ + 1 == pattern_.size()) {
      Copy(1);
      return absl::OkStatus();
    }
    const char c = pattern_[pos_ + 1];
    if (c == 'Q' || c == 'E') {
      return Refuse(fmt::format("PCRE2 quotes with \\Q and \\E, {} does not: leave the \\ out",
                                dialect_.name));
    }
    switch (c) {
      case 's':
      case 'S':
        return WriteShorthand(dialect_.space, c == 's', in_class);
      case 'w':
      case 'W':
        return WriteShorthand(dialect_.word, c == 'w', in_class);
      case 'v':  // PCRE2's is a class of line ends
        Replace(2, "\\x{0B}");
        return absl::OkStatus();
      case 'u':
        CodePoint(4);
        return absl::OkStatus();
      case 'b':
      case 'B':
        if (in_class) break;
        WriteBoundary(c == 'b');
        return absl::OkStatus();
      default:
        break;
    }
    return oniguruma() ? OnigurumaEscape(in_class) : PythonEscape(in_class);
  }

  absl::Status PythonEscape(bool in_class) {
    const char c = pattern_[pos_ + 1];
    if (c == 'Z' && !in_class) {
      Replace(2, "\\z");  // PCRE2's \Z also matches before a line end that ends the text
    } else if (c == 'U') {
      CodePoint(8);
    } else {
      CopyEscape();
    }
    return absl::OkStatus();
  }

  absl::Status OnigurumaEscape(bool in_class) {
    const char c = pattern_[pos_ + 1];
    constexpr std::string_view kSame = "aAdDefGknprPRtxzZ";
    if (c == 'h' || c == 'H') {
      const std::string_view digits = in_class ? "0-9a-fA-F" : "[0-9a-fA-F]";
      if (c == 'H' && in_class)
        return Refuse("\\H in a class is not supported: list the characters");
      Replace(2, c == 'h' ? digits : "[^0-9a-fA-F]");
    } else if (absl::ascii_isalpha(static_cast<unsigned char>(c)) &&
               kSame.find(c) == std::string_view::npos && !(in_class && c == 'b')) {
      return Refuse(
          fmt::format("\\{} has another meaning in PCRE2, or none: write what it stands for", c));
    } else if (c == 'p' || c == 'P') {
      Property();
    } else {
      CopyEscape();
    }
    return absl::OkStatus();
  }

  // With what stands in braces after it.
  void CopyEscape() {
    const bool named =
        std::string_view("xpPokgN").find(pattern_[pos_ + 1]) != std::string_view::npos;
    const bool braces = named && pos_ + 2 < pattern_.size() && pattern_[pos_ + 2] == '{';
    if (braces) return CopyThrough("}");
    Copy(1);
    CopyCharacter();
  }

  // \p{Han} is the script in Oniguruma, and in PCRE2 the script's extensions as well, such as 、.
  void Property() {
    const size_t end = pattern_.find('}', pos_);
    if (pos_ + 2 < pattern_.size() && pattern_[pos_ + 2] == '{' && end != std::string_view::npos) {
      const bool negated = pos_ + 3 < pattern_.size() && pattern_[pos_ + 3] == '^';
      const size_t begin = pos_ + 3 + (negated ? 1 : 0);
      const std::string name(pattern_.substr(begin, end - begin));
      if (IsScript(name)) {
        Replace(end + 1 - pos_,
                fmt::format("\\{}{{{}sc:{}}}", pattern_[pos_ + 1], negated ? "^" : "", name));
        return;
      }
    }
    CopyEscape();
  }

  // \u and \U, which PCRE2 refuses where they are left.
  void CodePoint(size_t digits) {
    const std::string_view number = pattern_.substr(pos_ + 2).substr(0, digits);
    const bool whole =
        number.size() == digits && std::all_of(number.begin(), number.end(), [](char c) {
          return absl::ascii_isxdigit(static_cast<unsigned char>(c));
        });
    if (!whole) return Copy(2);
    Replace(2 + digits, fmt::format("\\x{{{}}}", number));
  }

  absl::Status WriteShorthand(const Shorthand& shorthand, bool positive, bool in_class) {
    if (!in_class) {
      Replace(2, fmt::format("[{}{}{}]", positive ? "" : "^", shorthand.in, shorthand.alone));
      return absl::OkStatus();
    }
    if (!positive && shorthand.out.empty()) {
      return Refuse("\\W in a class is not supported: list the characters or their properties");
    }
    Replace(2, positive ? shorthand.in : shorthand.out);
    return absl::OkStatus();
  }

  void WriteBoundary(bool boundary) {
    const std::string word = fmt::format("[{}{}]", dialect_.word.in, dialect_.word.alone);
    Replace(2, boundary ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word)
                        : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word));
  }

  absl::Status Class() {
    Copy(1);
    if (At("^")) Copy(1);
    // PCRE2 refuses [:alpha:] for fear that [[:alpha:]] is meant.
    const bool escaped = At(":") || At(".") || At("=");
    if (escaped) out_ += '\\', Copy(1);
    TANDEM_RETURN_IF_ERROR(Members(/*first=*/!escaped));
    Copy(1);
    return absl::OkStatus();
  }

  // Up to the ] that ends the class. A ] that comes first is a member.
  absl::Status Members(bool first) {
    if (first && At("]")) Replace(1, "\\]");
    while (pos_ < pattern_.size() && !At("]")) {
      if (At("\\")) {
        TANDEM_RETURN_IF_ERROR(Escape(/*in_class=*/true));
      } else if (oniguruma() && (At("&&") || At("-["))) {
        return RefuseSet();
      } else if (oniguruma() && At("[")) {
        TANDEM_RETURN_IF_ERROR(InnerSet());
      } else if (At("[")) {
        Replace(1, "\\[");  // PCRE2 would read [:alpha:]
      } else if (At("-]")) {
        Replace(1, "\\-");  // also where more members follow an inner set
      } else {
        TANDEM_RETURN_IF_ERROR(CheckFolding(/*in_class=*/true));
        CopyCharacter();
      }
    }
    return absl::OkStatus();
  }

  absl::Status RefuseSet() const {
    return Refuse(
        "in a class, [:alpha:], [^a], a&&b and a - beside [a] are not supported: list the "
        "characters, write \\p{...} for a property, or \\[ for a bracket");
  }

  // [a[bc]d] is [abcd].
  absl::Status InnerSet() {
    if (At("[:") || At("[^")) return RefuseSet();
    Replace(1, "");
    const bool dash = At("-");
    if (dash) Replace(1, "\\-");
    TANDEM_RETURN_IF_ERROR(Members(/*first=*/!dash));
    if (pos_ == pattern_.size()) return Refuse("a class is not closed by ]");
    Replace(1, "");
    if (At("-") && !At("-]")) return RefuseSet();
    return absl::OkStatus();
  }

  absl::Status Group() {
    if (At("(*")) {
      return Refuse(fmt::format("(* begins a verb of PCRE2, and {} has none: write (\\* for a star",
                                dialect_.name));
    }
    if (At("(?#")) {
      CopyThrough(")");
      return absl::OkStatus();
    }
    const size_t end = pattern_.find_first_not_of("abcdefghijklmnopqrstuvwxyz-", pos_ + 2);
    const bool flags = At("(?") && end != std::string_view::npos && end > pos_ + 2 &&
                       (pattern_[end] == ')' || pattern_[end] == ':');
    if (flags) return Flags(end);
    caseless_.push_back(caseless_.back());
    Copy(At("(?") ? 2 : 1);
    return absl::OkStatus();
  }

  // (?i) or (?i: with any letters; `end` is behind them.
  absl::Status Flags(size_t end) {
    std::string letters(pattern_.substr(pos_ + 2, end - pos_ - 2));
    const auto has = [&](char c) { return letters.find(c) != std::string::npos; };
    if (has('x')) return Refuse("the flag x is not supported: write the pattern without blanks");
    if (pattern_[end] == ':') caseless_.push_back(caseless_.back());
    if (has('i')) caseless_.back() = letters.find('i') < letters.find('-');
    if (oniguruma()) {
      if (letters.find_first_not_of("im-") != std::string::npos) {
        return Refuse("Oniguruma has the flags i, m and x alone: m is what others call s");
      }
      if (pos_ > 0 && pattern_[end] == ')') {
        return Refuse(
            "in Oniguruma a flag inside a pattern covers the alternatives behind it, in PCRE2 it "
            "does not: write (?i:...)");
      }
      std::replace(letters.begin(), letters.end(), 'm', 's');
    }
    out_ += "(?" + letters;
    pos_ = end;
    Copy(1);
    return absl::OkStatus();
  }

  // A brace that begins no quantifier is a character.
  absl::Status Brace() {
    size_t end = pos_ + 1;
    const auto skip_digits = [&] {
      const size_t begin = end;
      while (end < pattern_.size() &&
             absl::ascii_isdigit(static_cast<unsigned char>(pattern_[end]))) {
        ++end;
      }
      return end > begin;
    };
    const bool low = skip_digits();
    const bool comma = end < pattern_.size() && pattern_[end] == ',';
    if (comma) ++end;
    const bool high = comma && skip_digits();
    const bool closed = end < pattern_.size() && pattern_[end] == '}';
    const bool quantifier = closed && (low || high || (comma && !oniguruma()));
    if (!quantifier) {
      Replace(1, "\\{");
      return absl::OkStatus();
    }
    if (oniguruma()) TANDEM_RETURN_IF_ERROR(CheckSuffix(end + 1, comma));
    if (!low) Replace(1, "{0");
    Copy(end + 1 - pos_);
    return absl::OkStatus();
  }

  // After {n} a ? means once or not at all, and after any interval a + means again.
  absl::Status CheckSuffix(size_t at, bool range) const {
    const char c = at < pattern_.size() ? pattern_[at] : '\0';
    if (c != '+' && (c != '?' || range)) return absl::OkStatus();
    return Refuse(fmt::format(
        "in Oniguruma a {0} after an interval repeats what is before it, in PCRE2 it changes how "
        "the interval matches: write (?:x{{2}}){0}",
        c));
  }

  const Dialect& dialect_;
  const std::string_view pattern_;
  size_t pos_ = 0;
  std::string out_;
  std::vector<bool> caseless_ = {false};  // of the pattern and of each open group
};

}  // namespace

absl::StatusOr<std::string> PcreFromOniguruma(std::string_view pattern) {
  return Translation(kOniguruma, pattern).Run();
}

absl::StatusOr<std::string> PcreFromPython(std::string_view pattern) {
  return Translation(kPython, pattern).Run();
}

}  // namespace tandem

#undef PCRE2_CODE_UNIT_WIDTH
