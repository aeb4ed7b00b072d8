#include "controller/step/phase_recorder.h"

#include <algorithm>

#include "common/base/progress.h"
#include "common/process/fault_injection.h"

namespace tandem {
namespace {

// The peaks of a worker that was idle during a phase are its current values.
LedgerSnapshot AtRest(LedgerSnapshot ledger) {
  for (LedgerEntry& entry : ledger.entries) entry.peak_bytes = entry.current_bytes;
  ledger.device_peak_bytes = ledger.device_bytes;
  ledger.memory_peak_bytes = ledger.memory_bytes;
  ledger.process_peak_bytes = ledger.process_bytes;
  ledger.driver_free_bytes = 0;  // stale: the other worker of the device has changed it since
  return ledger;
}

// The later snapshot with the higher peaks of both. A tag that only the earlier one has holds 0
// bytes by now.
LedgerSnapshot Merged(const LedgerSnapshot& before, LedgerSnapshot now) {
  for (const LedgerEntry& earlier : before.entries) {
    const auto same = std::find_if(now.entries.begin(), now.entries.end(), [&](const auto& entry) {
      return entry.tag == earlier.tag && entry.location == earlier.location;
    });
    if (same != now.entries.end()) {
      same->peak_bytes = std::max(same->peak_bytes, earlier.peak_bytes);
    } else {
      now.entries.push_back({earlier.tag, earlier.location, 0, earlier.peak_bytes});
    }
  }
  now.device_peak_bytes = std::max(now.device_peak_bytes, before.device_peak_bytes);
  now.memory_peak_bytes = std::max(now.memory_peak_bytes, before.memory_peak_bytes);
  now.process_peak_bytes = std::max(now.process_peak_bytes, before.process_peak_bytes);
  return now;
}

void Put(PhaseTime& phase, const WorkerKey& key, const LedgerSnapshot& ledger) {
  const bool trainer = key.role == WorkerRole::kTrainer;
  const auto same =
      std::find_if(phase.workers.begin(), phase.workers.end(), [&](const WorkerMemory& worker) {
        return worker.trainer == trainer && worker.rank == key.rank;
      });
  if (same == phase.workers.end()) {
    phase.workers.push_back({trainer, key.rank, ledger});
  } else {
    same->ledger = Merged(same->ledger, ledger);
  }
}

// The largest sum of the peaks of the workers of one device. The peaks of two can be added, because
// they take turns: one of them is idle in each phase.
int64_t DevicePeak(const PhaseTime& phase, const Topology& topology) {
  std::map<int, int64_t> devices;
  for (const WorkerMemory& worker : phase.workers) {
    const int device = worker.trainer ? topology.DeviceOfTrainer(worker.rank)
                                      : topology.DeviceOfRollout(worker.rank);
    devices[device] += worker.ledger.peak_on_device();
  }
  int64_t peak = 0;
  for (const auto& [device, bytes] : devices) peak = std::max(peak, bytes);
  return peak;
}

}  // namespace

void PhaseRecorder::Begin(const char* phase) {
  End();
  current_ = phase;
  current_start_ = clock_.Now();
  progress_.OnPhase(step_, phase);
  NoteActivity(phase);
  FaultPoint(phase);
}

void PhaseRecorder::Report(const WorkerKey& key, const PhaseReport& report) {
  const auto [at, first] = reported_.emplace(key, report.ledger);
  if (!first) at->second = Merged(at->second, report.ledger);
  pool_.NoteLedger(key, report.ledger);
}

void PhaseRecorder::ReportOf(const std::string& phase,
                             const WorkerKey& key,
                             const PhaseReport& report) {
  PhaseTime* const ended = Find(phase);
  if (ended == nullptr) return;
  Put(*ended, key, report.ledger);
  ended->peak_bytes = DevicePeak(*ended, pool_.topology());
}

void PhaseRecorder::Report(WorkerRole role, const std::vector<PhaseReport>& reports) {
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    Report({role, static_cast<int>(rank)}, reports[rank]);
  }
}

void PhaseRecorder::End() {
  if (current_.empty()) return;
  PhaseTime* phase = Find(current_);
  if (phase == nullptr) {
    phases_.push_back({.phase = current_});
    phase = &phases_.back();
  }
  const auto put = [&](const WorkerKey& key) {
    const auto reported = reported_.find(key);
    Put(*phase, key, reported != reported_.end() ? reported->second : AtRest(pool_.Ledger(key)));
  };
  const Topology& workers = pool_.topology();
  for (int rank = 0; rank < std::max(workers.trainers, workers.rollouts); ++rank) {
    if (rank < workers.trainers) put({WorkerRole::kTrainer, rank});
    if (rank < workers.rollouts) put({WorkerRole::kRollout, rank});
  }
  phase->seconds += absl::ToDoubleSeconds(clock_.Now() - current_start_);
  phase->peak_bytes = DevicePeak(*phase, pool_.topology());
  reported_.clear();
  current_.clear();
}

PhaseTime* PhaseRecorder::Find(const std::string& phase) {
  const auto found = std::find_if(phases_.begin(), phases_.end(),
                                  [&](const PhaseTime& entry) { return entry.phase == phase; });
  return found == phases_.end() ? nullptr : &*found;
}

double PhaseRecorder::Seconds(const std::string& phase) const {
  for (const PhaseTime& entry : phases_) {
    if (entry.phase == phase) return entry.seconds;
  }
  return 0;
}

}  // namespace tandem
