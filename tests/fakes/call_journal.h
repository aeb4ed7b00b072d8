// The calls that fakes received, in order, and their next replies.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>

#include "common/base/mutex.h"

namespace tandem::testing {

// Thread-safe.
class CallJournal {
 public:
  // Writes the call down and returns what it shall end with.
  absl::Status Call(const std::string& who, const std::string& what) {
    const std::string line = who + " " + what;
    if (!hook_prefix_.empty() && line.rfind(hook_prefix_, 0) == 0) hook_();
    const MutexLock lock(calls_mutex_);
    lines_.push_back(line);
    const auto found = failures_.find({who, what.substr(0, what.find('('))});
    if (found == failures_.end()) return absl::OkStatus();
    Failure& failure = found->second;
    if (failure.after-- > 0) return absl::OkStatus();
    const absl::Status status = failure.status;
    if (--failure.times <= 0) failures_.erase(found);
    return status;
  }
  // After `after` calls of `method` at `who`, the next `times` fail.
  void FailNext(const std::string& who,
                const std::string& method,
                absl::Status status,
                int after = 0,
                int times = 1) {
    const MutexLock lock(calls_mutex_);
    failures_[{who, method}] = {std::move(status), after, times};
  }
  // Runs `hook` at every call whose line begins with `prefix`. Set before the run.
  void OnCall(const std::string& prefix, std::function<void()> hook) {
    hook_prefix_ = prefix;
    hook_ = std::move(hook);
  }
  std::vector<std::string> Take() {
    const MutexLock lock(calls_mutex_);
    return std::exchange(lines_, {});
  }
  // How many lines so far begin with `prefix`.
  int Count(const std::string& prefix) const {
    const MutexLock lock(calls_mutex_);
    int count = 0;
    for (const std::string& line : lines_) count += line.rfind(prefix, 0) == 0 ? 1 : 0;
    return count;
  }

 private:
  struct Failure {
    absl::Status status;
    int after = 0;
    int times = 1;
  };

  mutable Mutex calls_mutex_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(calls_mutex_);
  std::map<std::pair<std::string, std::string>, Failure> failures_ ABSL_GUARDED_BY(calls_mutex_);
  std::string hook_prefix_;
  std::function<void()> hook_;
};

}  // namespace tandem::testing
