#include "common/net/security/refusal_log.h"

#include "common/base/log.h"

namespace tandem {

bool RefusalLog::IsDue(const std::string& who) {
  const MutexLock lock(told_mutex_);
  const Instant now = clock_.Now();
  std::erase_if(told_, [now](const auto& told) { return now - told.second >= kPause; });
  return told_.size() < kMostLines && told_.try_emplace(who, now).second;
}

void RefusalLog::Tell(const std::string& who, const std::string& text) {
  if (IsDue(who)) {
    LogWarn(
        "Refused a call (logged at most once a minute per caller, {} lines a minute in total): {}",
        kMostLines, text);
  }
}

}  // namespace tandem
