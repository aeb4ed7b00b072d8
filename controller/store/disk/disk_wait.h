// Lets a run wait between two steps for a disk that is full or fails, instead of ending.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/time/time.h>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/formats/free_space.h"

namespace tandem {

struct DiskWaitOptions {
  absl::Duration retry_every = absl::Seconds(10);
  std::function<bool()> ended;                   // a user stops the run; empty: never
  std::function<void(const std::string&)> tell;  // one line for the user; may be empty
  // What is free in a folder, in bytes; nullopt: unknown.
  std::function<std::optional<int64_t>(const std::string& folder)> free_bytes = FreeBytesIn;
};

// What a run writes, for messages.
struct DiskNeed {
  std::string what;    // "a checkpoint"
  std::string folder;  // on whose disk it lies
  int64_t bytes = 0;   // 0: unknown, little
};

// Until and waited are called by the train loop's thread alone; waits_for by any.
class DiskWait {
 public:
  // `clock` must outlive the object.
  DiskWait(Clock& clock, DiskWaitOptions options) : clock_(clock), options_(std::move(options)) {}

  // Calls `write` until it returns OK or an error that no disk has caused (IsDiskRefused), every
  // retry_every. While a full disk has less free than need.bytes it is tried only once a minute,
  // since each attempt would fill it again with what others on it free. Nothing may be lost by a
  // failed call. Once the run is ended, the disk's error is returned too.
  absl::Status Until(const DiskNeed& need, const std::function<absl::Status()>& write);

  // The sum of all waits so far. For the thread that calls Until.
  absl::Duration waited() const { return waited_; }
  // What the run waits for now; empty: nothing.
  std::string waits_for() const;

 private:
  bool ended() const { return options_.ended && options_.ended(); }
  void Pause();
  // Whether an attempt is known to fail for want of space.
  bool LacksSpace(const DiskNeed& need, const absl::Status& refused) const;
  void SetWaitsFor(const std::string& text);
  void Tell(const std::string& text) const;

  Clock& clock_;
  const DiskWaitOptions options_;
  absl::Duration waited_;
  mutable Mutex wait_mutex_;
  std::string waits_for_ ABSL_GUARDED_BY(wait_mutex_);
};

}  // namespace tandem
