#include "common/net/security/refusal_log.h"

#include "common/base/log.h"

namespace tandem {

bool RefusalLog::IsDue(const std::string& who) {
  const MutexLock lock(told_mutex_);
  const Instant now = clock_.Now();
  const auto told = told_.find(who);
  if (told != told_.end() && now - told->second < kPause) return false;
  if (told == told_.end() && told_.size() == kMostRemembered) told_.clear();
  told_[who] = now;
  return true;
}

void RefusalLog::Tell(const std::string& who, const std::string& text) {
  if (IsDue(who)) {
    LogWarn("Refused a call, and says so once a minute for each such caller: {}", text);
  }
}

}  // namespace tandem
