#include "common/text/unicode/normalization.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>

#include "common/base/check.h"

namespace tandem {

std::string NormalizeNfc(std::string_view text) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* const nfc = icu::Normalizer2::getNFCInstance(error);
  TANDEM_CHECK(U_SUCCESS(error), "ICU has no data for Unicode normalization");
  std::string out;
  icu::StringByteSink<std::string> sink(&out, static_cast<int32_t>(text.size()));
  nfc->normalizeUTF8(0, {text.data(), static_cast<int32_t>(text.size())}, sink, nullptr, error);
  TANDEM_CHECK(U_SUCCESS(error), "ICU cannot normalize a text");
  return out;
}

}  // namespace tandem
