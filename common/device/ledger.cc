#include "common/device/ledger.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/base/check.h"
#include "common/device/device_memory.h"

namespace tandem {

std::string LocationName(Location location) {
  switch (location) {
    case Location::kDevice:
      return "device";
    case Location::kHost:
      return "host";
    case Location::kFile:
      return "file";
  }
  return "unknown";
}

int64_t BytesIn(const LedgerSnapshot& snapshot, Location location) {
  int64_t sum = 0;
  for (const LedgerEntry& entry : snapshot.entries) {
    if (entry.location == location) sum += entry.current_bytes;
  }
  return sum;
}

int64_t BytesOf(const LedgerSnapshot& snapshot, const std::string& tag) {
  int64_t sum = 0;
  for (const LedgerEntry& entry : snapshot.entries) {
    if (entry.tag == tag) sum += entry.current_bytes;
  }
  return sum;
}

void Ledger::Add(const std::string& tag, Location location, int64_t delta_bytes) {
  std::lock_guard lock(mutex_);
  Amount& amount = amounts_[{tag, location}];
  amount.current += delta_bytes;
  TANDEM_CHECK(amount.current >= 0,
               fmt::format("ledger: {} ({}) gave back {} bytes more than it took", tag,
                           LocationName(location), -amount.current));
  amount.peak = std::max(amount.peak, amount.current);
}

LedgerSnapshot Ledger::Snapshot() const {
  LedgerSnapshot snapshot;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [key, amount] : amounts_) {
      snapshot.entries.push_back({key.first, key.second, amount.current, amount.peak});
    }
  }
  const ProcessMemory process = ReadProcessMemory();
  snapshot.process_bytes = process.resident;
  snapshot.process_peak_bytes = process.peak_resident;
  return snapshot;
}

void Ledger::ResetPeaks() {
  {
    std::lock_guard lock(mutex_);
    for (auto& [key, amount] : amounts_) amount.peak = amount.current;
  }
  ResetProcessPeak();
}

}  // namespace tandem
