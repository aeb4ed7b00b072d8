#include "common/device/ledger.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/base/check.h"
#include "common/device/device_memory.h"

namespace tandem {

int64_t BytesOf(const LedgerSnapshot& snapshot, const std::string& tag) {
  int64_t sum = 0;
  for (const LedgerEntry& entry : snapshot.entries) {
    if (entry.tag == tag) sum += entry.current_bytes;
  }
  return sum;
}

Ledger::Ledger() : baseline_bytes_(ReadProcessMemory().resident) {}

void Ledger::Amount::Add(int64_t delta) {
  current += delta;
  peak = std::max(peak, current);
}

void Ledger::AddLocked(const std::string& tag, Location location, int64_t delta_bytes) {
  Amount& amount = amounts_[{tag, location}];
  amount.Add(delta_bytes);
  TANDEM_CHECK(amount.current >= 0,
               fmt::format("ledger: {} ({}) released {} bytes more than it allocated", tag,
                           LocationName(location), -amount.current));
  if (location == Location::kDevice) device_.Add(delta_bytes);
  if (location != Location::kFile) memory_.Add(delta_bytes);
}

void Ledger::Add(const std::string& tag, Location location, int64_t delta_bytes) {
  const MutexLock lock(amounts_mutex_);
  AddLocked(tag, location, delta_bytes);
  if (location != Location::kFile) outside_regions_ += delta_bytes;
}

void Ledger::AddRegion(const void* key,
                       const std::string& tag,
                       Location location,
                       int64_t bytes,
                       std::function<int64_t()> resident) {
  const MutexLock lock(amounts_mutex_);
  const bool added =
      regions_.emplace(key, Region{tag, location, bytes, std::move(resident)}).second;
  TANDEM_CHECK(added, fmt::format("ledger: a region of {} is counted twice", tag));
  AddLocked(tag, location, bytes);
}

void Ledger::RemoveRegion(const void* key) {
  const MutexLock lock(amounts_mutex_);
  auto region = regions_.find(key);
  while (region != regions_.end() && region->second.readers > 0) {
    region_read_.Wait(amounts_mutex_);
    region = regions_.find(key);
  }
  if (region == regions_.end()) return;
  AddLocked(region->second.tag, region->second.location, -region->second.bytes);
  regions_.erase(region);
}

void Ledger::ChangeForeign(int64_t delta_bytes, const std::function<bool()>& change) {
  const MutexLock lock(amounts_mutex_);
  // The system's peak includes the foreign pages up to now: keep the rest of it, and restart the
  // system's peak below.
  own_peak_ = std::max(own_peak_, ReadProcessMemory().peak_resident - foreign_);
  if (!change()) return;
  ResetProcessPeak();
  foreign_ += delta_bytes;
  TANDEM_CHECK(foreign_ >= 0, "ledger: more foreign pages were unmapped than mapped");
}

void Ledger::SetDriverReader(std::function<DriverMemory()> read) { driver_ = std::move(read); }

int64_t Ledger::memory_bytes() const {
  const MutexLock lock(amounts_mutex_);
  return memory_.current;
}

int64_t Ledger::ResidentBytes(const std::vector<Region*>& regions) const {
  int64_t bytes = 0;
  for (Region* region : regions) {
    bytes += region->resident();
    const MutexLock lock(amounts_mutex_);
    --region->readers;
    region_read_.NotifyAll();
  }
  return bytes;
}

LedgerSnapshot Ledger::Snapshot() const {
  LedgerSnapshot snapshot;
  std::vector<Region*> regions;
  {
    const MutexLock lock(amounts_mutex_);
    for (const auto& [key, amount] : amounts_) {
      snapshot.entries.push_back({key.first, key.second, amount.current, amount.peak});
    }
    snapshot.device_bytes = device_.current;
    snapshot.device_peak_bytes = device_.peak;
    snapshot.memory_bytes = memory_.current;
    snapshot.memory_peak_bytes = memory_.peak;
    snapshot.resident_bytes = outside_regions_;
    const ProcessMemory process = ReadProcessMemory();
    snapshot.process_bytes = process.resident - foreign_;
    snapshot.process_peak_bytes =
        std::max({own_peak_, snapshot.process_bytes, process.peak_resident - foreign_});
    for (auto& [key, region] : regions_) {
      ++region.readers;  // it cannot be removed until it is read
      regions.push_back(&region);
    }
  }
  snapshot.resident_bytes += ResidentBytes(regions);
  snapshot.baseline_bytes = baseline_bytes_;
  if (driver_) {
    const DriverMemory driver = driver_();
    snapshot.driver_total_bytes = driver.total;
    snapshot.driver_free_bytes = driver.free;
  }
  return snapshot;
}

void Ledger::ResetPeaks() {
  {
    const MutexLock lock(amounts_mutex_);
    for (auto& [key, amount] : amounts_) amount.peak = amount.current;
    device_.peak = device_.current;
    memory_.peak = memory_.current;
    own_peak_ = 0;
    ResetProcessPeak();
  }
}

}  // namespace tandem
