#include "controller/store/time_stamp.h"

#include <absl/time/time.h>

namespace tandem {

std::string StampText(int64_t micros) {
  if (micros == 0) return "";
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::FromUnixMicros(micros),
                          absl::UTCTimeZone());
}

int64_t MicrosOfStamp(const std::string& stamp) {
  absl::Time time;
  return absl::ParseTime(absl::RFC3339_full, stamp, &time, nullptr) ? absl::ToUnixMicros(time) : 0;
}

}  // namespace tandem
