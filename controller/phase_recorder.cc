#include "controller/phase_recorder.h"

#include <algorithm>

#include "common/base/fault_point.h"

namespace tandem {
namespace {

// Files are no memory.
int64_t PeakBytes(const LedgerSnapshot& ledger) {
  int64_t bytes = 0;
  for (const LedgerEntry& entry : ledger.entries) {
    if (entry.location != Location::kFile) bytes += entry.peak_bytes;
  }
  return bytes;
}

int64_t CurrentBytes(const LedgerSnapshot& ledger) {
  int64_t bytes = 0;
  for (const LedgerEntry& entry : ledger.entries) {
    if (entry.location != Location::kFile) bytes += entry.current_bytes;
  }
  return bytes;
}

}  // namespace

void PhaseRecorder::Begin(const std::string& phase) {
  End();
  current_ = phase;
  current_start_ = clock_.Now();
  progress_.OnPhase(step_, phase);
  FaultPoint(phase.c_str());
}

void PhaseRecorder::Report(const WorkerKey& key, const PhaseReport& report) {
  int64_t& peak = reported_peak_[key];
  peak = std::max(peak, PeakBytes(report.ledger));
}

void PhaseRecorder::End() {
  if (current_.empty()) return;
  int64_t peak = 0;
  for (int rank = 0; rank < pool_.pairs(); ++rank) {
    int64_t pair = 0;
    for (const WorkerRole role : {WorkerRole::kTrainer, WorkerRole::kRollout}) {
      const WorkerKey key{role, rank};
      const auto reported = reported_peak_.find(key);
      pair += reported != reported_peak_.end() ? reported->second : CurrentBytes(pool_.Ledger(key));
    }
    peak = std::max(peak, pair);
  }
  auto entry = std::find_if(phases_.begin(), phases_.end(),
                            [this](const PhaseTime& p) { return p.phase == current_; });
  if (entry == phases_.end()) entry = phases_.insert(phases_.end(), {.phase = current_});
  entry->seconds += absl::ToDoubleSeconds(clock_.Now() - current_start_);
  entry->peak_bytes = std::max(entry->peak_bytes, peak);
  reported_peak_.clear();
  current_.clear();
}

double PhaseRecorder::Seconds(const std::string& phase) const {
  for (const PhaseTime& entry : phases_) {
    if (entry.phase == phase) return entry.seconds;
  }
  return 0;
}

}  // namespace tandem
