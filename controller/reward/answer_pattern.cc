#include "controller/reward/answer_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <array>
#include <mutex>

#include <pcre2.h>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/text/unicode/regex_dialect.h"

namespace tandem {
namespace {

using MatchData = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;

// Warns only once: a pattern that exceeds the limit on one response does so on many.
void WarnOfLimit(int error) {
  static std::once_flag said;
  std::call_once(said, [error] {
    std::array<PCRE2_UCHAR, 256> message{};
    pcre2_get_error_message(error, message.data(), message.size());
    LogWarn(
        "reward pattern: the search in a response was given up ({}); such responses have "
        "no answer. Write the pattern without nested repetitions",
        reinterpret_cast<const char*>(message.data()));
  });
}

}  // namespace

absl::StatusOr<AnswerPattern> AnswerPattern::Compile(const std::string& pattern) {
  TANDEM_ASSIGN_OR_RETURN(const std::string pcre, PcreFromPython(pattern));
  constexpr uint32_t kOptions =
      PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_ALT_CIRCUMFLEX;
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pcre.data()), pcre.size(), kOptions,
                                   &error, &offset, nullptr);
  if (code == nullptr) {
    std::array<PCRE2_UCHAR, 256> message{};
    pcre2_get_error_message(error, message.data(), message.size());
    const std::string read_as = pcre == pattern ? "" : fmt::format(" of \"{}\"", pcre);
    return InvalidArgument("pattern \"{}\" does not compile at offset {}{}: {}", pattern, offset,
                           read_as, reinterpret_cast<const char*>(message.data()));
  }
  return AnswerPattern(std::shared_ptr<const void>(code, [](const void* p) {
    pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(p)));
  }));
}

std::optional<std::string> AnswerPattern::LastCapture(const std::string& text) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const MatchData data(pcre2_match_data_create_from_pattern(code, nullptr), &pcre2_match_data_free);
  std::optional<std::string> last;
  size_t start = 0;
  while (start <= text.size()) {
    const int groups = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                   start, 0, data.get(), nullptr);
    if (groups < 0 && groups != PCRE2_ERROR_NOMATCH) WarnOfLimit(groups);
    if (groups <= 0) break;
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
    const bool has_group = groups > 1 && ends[2] != PCRE2_UNSET;
    const size_t begin = has_group ? ends[2] : ends[0], end = has_group ? ends[3] : ends[1];
    last = text.substr(begin, end - begin);
    start = ends[1] > start ? ends[1] : start + 1;
  }
  return last;
}

}  // namespace tandem

#undef PCRE2_CODE_UNIT_WIDTH
