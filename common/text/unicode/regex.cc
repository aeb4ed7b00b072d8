#include "common/text/unicode/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "common/base/status.h"
#include "common/text/unicode/regex_dialect.h"
#include "common/text/unicode/utf8.h"

namespace tandem {
namespace {

constexpr size_t kMaxPatternBytes = 64 << 10;
// Backtracking steps from one place of the text. A fuzzer, whose build defines this name, reaches
// the limit often and must not take seconds for it.
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
constexpr uint32_t kMatchLimit = 10'000;
#else
constexpr uint32_t kMatchLimit = 10'000'000;
#endif
constexpr uint32_t kDepthLimit = 1'000'000;  // of the interpreter, where there is no JIT
constexpr uint32_t kHeapLimitKiB = 64 << 10;

// The limits of a search, the same for all; never freed.
pcre2_match_context* Limits() {
  static pcre2_match_context* const limits = [] {
    pcre2_match_context* made = pcre2_match_context_create(nullptr);
    pcre2_set_match_limit(made, kMatchLimit);
    pcre2_set_depth_limit(made, kDepthLimit);
    pcre2_set_heap_limit(made, kHeapLimitKiB);
    return made;
  }();
  return limits;
}

std::string ErrorText(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
using MatchData = std::unique_ptr<pcre2_match_data, FreeMatchData>;

// `pcre` is what `pattern` became.
absl::StatusOr<std::shared_ptr<const void>> CompilePcre(const std::string& pattern,
                                                        const std::string& pcre,
                                                        uint32_t options) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pcre.data()), pcre.size(),
                                   PCRE2_UTF | PCRE2_UCP | options, &error, &offset, nullptr);
  if (code == nullptr) {
    const std::string read_as = pcre == pattern ? "" : fmt::format(" of '{}'", pcre);
    return InvalidArgument("regex '{}' does not compile: {} at offset {}{}", pattern,
                           ErrorText(error), offset, read_as);
  }
  // Where JIT is not available pcre2_match interprets: slower, same matches.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return std::shared_ptr<const void>(
      code, [](const void* p) { pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(p))); });
}

// What pcre2_match returns; the bounds of the match are in `data`.
absl::StatusOr<int> Search(const void* compiled,
                           std::string_view text,
                           size_t pos,
                           uint32_t options,
                           pcre2_match_data* data) {
  const auto* code = static_cast<const pcre2_code*>(compiled);
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  options |= PCRE2_NO_UTF_CHECK;
  int found = pcre2_match(code, subject, text.size(), pos, options, data, Limits());
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
    found = pcre2_match(code, subject, text.size(), pos, options | PCRE2_NO_JIT, data, Limits());
  }
  if (found >= 0 || found == PCRE2_ERROR_NOMATCH) return found;
  return absl::ResourceExhaustedError(fmt::format(
      "regex search failed at byte {} of {}: {}; the pattern tries too many ways to match "
      "this text: use another one, or shorten the text",
      pos, text.size(), ErrorText(found)));
}

absl::Status CheckPattern(const std::string& pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return InvalidArgument("a regex of {} bytes is too long, {} are allowed", pattern.size(),
                           kMaxPatternBytes);
  }
  if (!IsValidUtf8(pattern)) return InvalidArgument("a regex is not valid UTF-8");
  return absl::OkStatus();
}

MatchData DataFor(const void* compiled) {
  return MatchData(
      pcre2_match_data_create_from_pattern(static_cast<const pcre2_code*>(compiled), nullptr));
}

}  // namespace

absl::StatusOr<Regex> Regex::Compile(const std::string& pattern) {
  TANDEM_RETURN_IF_ERROR(CheckPattern(pattern));
  TANDEM_ASSIGN_OR_RETURN(const std::string pcre, PcreFromOniguruma(pattern));
  TANDEM_ASSIGN_OR_RETURN(auto code, CompilePcre(pattern, pcre, PCRE2_MULTILINE));
  return Regex(std::move(code));
}

absl::StatusOr<Regex> Regex::CompilePython(const std::string& pattern) {
  TANDEM_RETURN_IF_ERROR(CheckPattern(pattern));
  TANDEM_ASSIGN_OR_RETURN(const std::string pcre, PcreFromPython(pattern));
  TANDEM_ASSIGN_OR_RETURN(auto code, CompilePcre(pattern, pcre, PCRE2_ALT_CIRCUMFLEX));
  return Regex(std::move(code));
}

absl::StatusOr<std::vector<Regex::Match>> Regex::FindAll(std::string_view text) const {
  const MatchData data = DataFor(code_.get());
  std::vector<Match> matches;
  size_t pos = 0;
  while (pos < text.size()) {
    TANDEM_ASSIGN_OR_RETURN(const int found, Search(code_.get(), text, pos, 0, data.get()));
    if (found == PCRE2_ERROR_NOMATCH) break;
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
    if (range[1] > range[0]) {
      matches.push_back({range[0], range[1]});
      pos = range[1];
    } else {
      // An empty match splits nothing: go on behind the next character.
      pos = range[1] + 1;
      while (pos < text.size() && (static_cast<unsigned char>(text[pos]) & 0xC0) == 0x80) ++pos;
    }
  }
  return matches;
}

absl::StatusOr<bool> Regex::MatchesWhole(std::string_view text) const {
  const MatchData data = DataFor(code_.get());
  TANDEM_ASSIGN_OR_RETURN(const int found, Search(code_.get(), text, 0,
                                                  PCRE2_ANCHORED | PCRE2_ENDANCHORED, data.get()));
  return found != PCRE2_ERROR_NOMATCH;
}

}  // namespace tandem

#undef PCRE2_CODE_UNIT_WIDTH
