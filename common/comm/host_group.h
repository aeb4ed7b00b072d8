// A group over host memory that a group of devices is built on.
#pragma once

#include <cstdint>

#include <absl/status/status.h>

#include "common/comm/communicator.h"

namespace tandem {

// Beside its collectives, what tells a rank whose device waits what has become of the others. All
// of it at any time and on any thread, whatever collective is under way.
class HostGroup : public Communicator {
 public:
  // OK, or why the group has ended.
  virtual absl::Status status() const = 0;
  // Ends the group with `why` on all ranks; the first reason stays. Returns the one that stays.
  virtual absl::Status Fail(const absl::Status& why) = 0;

  // A number that only grows, for the others to see; 0 at first.
  virtual void ShowProgress(uint64_t progress) = 0;
  virtual uint64_t ProgressOf(int rank) const = 0;
  // A rank whose process is gone before its progress was `wanted`, or -1. Rank 0 sees every rank,
  // the others rank 0: it tells them by Fail.
  virtual int FindGone(uint64_t wanted) const = 0;
};

}  // namespace tandem
