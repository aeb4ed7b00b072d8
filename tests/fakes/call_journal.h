// What fakes were asked for, in order, and what they shall answer next.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>

namespace tandem::testing {

// Thread-safe.
class CallJournal {
 public:
  // Writes the call down and returns what it shall end with.
  absl::Status Call(const std::string& who, const std::string& what) {
    std::lock_guard lock(mutex_);
    lines_.push_back(who + " " + what);
    const auto failure = failures_.find({who, what.substr(0, what.find('('))});
    if (failure == failures_.end() || failure->second.first-- > 0) return absl::OkStatus();
    const absl::Status status = failure->second.second;
    failures_.erase(failure);
    return status;
  }
  // Call number `after` + 1 of `method` at `who` from now fails once.
  void FailNext(const std::string& who,
                const std::string& method,
                absl::Status status,
                int after = 0) {
    std::lock_guard lock(mutex_);
    failures_[{who, method}] = {after, std::move(status)};
  }
  std::vector<std::string> Take() {
    std::lock_guard lock(mutex_);
    return std::exchange(lines_, {});
  }
  // How many lines so far begin with `prefix`.
  int Count(const std::string& prefix) const {
    std::lock_guard lock(mutex_);
    int count = 0;
    for (const std::string& line : lines_) count += line.rfind(prefix, 0) == 0 ? 1 : 0;
    return count;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
  std::map<std::pair<std::string, std::string>, std::pair<int, absl::Status>> failures_;
};

}  // namespace tandem::testing
