#include "controller/workers/worker_pool.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/ranges.h>

#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/status.h"
#include "controller/workers/running_calls.h"

namespace tandem {
namespace {

constexpr char kWorkerDidNotReturnUrl[] = "tandem.WorkerDidNotReturn";

// Returns the client of the ready worker `key`, a new one if the incarnation changed.
template <typename Client, typename Make>
absl::StatusOr<std::shared_ptr<Client>> CurrentClient(
    const WorkerRegistry& registry,
    const WorkerKey& key,
    std::map<int, std::shared_ptr<Client>>& clients,
    const Make& make) {
  const std::optional<int64_t> incarnation = registry.ReadyIncarnation(key);
  if (!incarnation) {
    return MakeStatus(absl::StatusCode::kUnavailable, "{} is not ready", key.Text());
  }
  std::shared_ptr<Client>& client = clients[key.rank];
  if (client == nullptr || client->incarnation() != *incarnation) {
    // It may be another by now, which the next call then is to.
    TANDEM_ASSIGN_OR_RETURN(client, make(*registry.Find(key)));
  }
  return client;
}

// Moves the clients that `only` means out of those of `role`.
template <typename Client>
std::map<int, std::shared_ptr<Client>> TakeClients(
    WorkerRole role,
    const std::optional<WorkerProcess>& only,
    std::map<int, std::shared_ptr<Client>>& clients) {
  std::map<int, std::shared_ptr<Client>> taken;
  for (auto next = clients.begin(); next != clients.end();) {
    const auto client = next++;
    const bool made = client->second != nullptr;
    if (only && (only->key != WorkerKey{role, client->first} || !made ||
                 client->second->incarnation() != only->incarnation)) {
      continue;
    }
    if (made) taken.insert(*client);
    clients.erase(client);
  }
  return taken;
}

bool IsCurrent(const WorkerRegistry& registry, const WorkerKey& key, int64_t incarnation) {
  return registry.ReadyIncarnation(key) == incarnation;
}

// Whether a worker of an earlier controller, which has not come back, keeps others from its rank.
bool AnyRankIsHeld(const WorkerRegistry& registry) {
  const std::vector<WorkerEntry> workers = registry.Workers(WorkerChoice::kRestoredToo);
  return std::any_of(workers.begin(), workers.end(), [](const WorkerEntry& worker) {
    return worker.restored && worker.held_for > absl::ZeroDuration();
  });
}

}  // namespace

bool WorkerDidNotReturn(const absl::Status& status) {
  return status.GetPayload(kWorkerDidNotReturnUrl).has_value();
}

absl::Status WorkerPool::WaitUntilComplete(absl::Duration timeout,
                                           const std::function<bool()>& interrupted) {
  Instant deadline = clock_.Now() + timeout;
  std::vector<std::string> missing = registry_.Missing();
  if (!missing.empty()) LogInfo("Waiting for {}", fmt::join(missing, ", "));
  while (!missing.empty()) {
    if (interrupted && interrupted()) return absl::CancelledError("interrupted");
    // The timeout starts when no rank is reserved any more for a worker of an earlier controller.
    if (AnyRankIsHeld(registry_)) deadline = clock_.Now() + timeout;
    if (clock_.Now() >= deadline) {
      absl::Status status = MakeStatus(
          absl::StatusCode::kDeadlineExceeded,
          "after {} these workers are still missing: {}; the end of their logs says why (under a "
          "launcher logs/ROLE-RANK.log in the run directory). Where they only take longer to "
          "start, raise cluster.register_timeout_seconds",
          absl::FormatDuration(timeout), fmt::join(missing, ", "));
      status.SetPayload(kWorkerDidNotReturnUrl, absl::Cord("1"));
      return status;
    }
    NoteProgress();
    clock_.Sleep(absl::Milliseconds(20));
    missing = registry_.Missing();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<TrainerClient>> WorkerPool::trainer(int rank) {
  const MutexLock lock(clients_mutex_);
  return CurrentClient(registry_, {WorkerRole::kTrainer, rank}, trainers_, factory_.trainer);
}

absl::StatusOr<std::shared_ptr<RolloutClient>> WorkerPool::rollout(int rank) {
  const MutexLock lock(clients_mutex_);
  return CurrentClient(registry_, {WorkerRole::kRollout, rank}, rollouts_, factory_.rollout);
}

std::vector<WorkerMember> WorkerPool::Members(WorkerRole role) const {
  const int count = role == WorkerRole::kTrainer ? topology_.trainers : topology_.rollouts;
  std::vector<WorkerMember> members(static_cast<size_t>(count));
  for (const WorkerEntry& entry : registry_.Workers()) {
    if (entry.key().role != role || entry.state != WorkerEntry::State::kReady) continue;
    members[static_cast<size_t>(entry.key().rank)] = {entry.incarnation, entry.announcement.host,
                                                      entry.announcement.data_address};
  }
  return members;
}

std::vector<int64_t> WorkerPool::Incarnations() const {
  std::vector<int64_t> incarnations;
  for (const WorkerEntry& entry : registry_.Workers()) incarnations.push_back(entry.incarnation);
  return incarnations;
}

LedgerSnapshot WorkerPool::Ledger(const WorkerKey& key) const {
  const auto entry = registry_.Find(key);
  return entry ? entry->news.ledger : LedgerSnapshot{};
}

std::vector<std::optional<GeneratorLoad>> WorkerPool::GenerationLoads() const {
  std::vector<std::optional<GeneratorLoad>> loads;
  for (int rank = 0; rank < topology_.rollouts; ++rank) {
    const auto entry = registry_.Find({WorkerRole::kRollout, rank});
    loads.push_back(entry ? entry->news.generation : std::nullopt);
  }
  return loads;
}

void WorkerPool::NoteLedger(const WorkerKey& key, const LedgerSnapshot& ledger) {
  registry_.NoteLedger(key, ledger);
}

void WorkerPool::MarkLost(const WorkerKey& key, int64_t incarnation) {
  registry_.MarkLost(key, incarnation);
}

void WorkerPool::Reconnect(std::optional<WorkerProcess> only) {
  std::map<int, std::shared_ptr<TrainerClient>> trainers;
  std::map<int, std::shared_ptr<RolloutClient>> rollouts;
  {
    const MutexLock lock(clients_mutex_);
    trainers = TakeClients(WorkerRole::kTrainer, only, trainers_);
    rollouts = TakeClients(WorkerRole::kRollout, only, rollouts_);
  }
  for (const auto& [rank, client] : trainers) client->CancelAll();
  for (const auto& [rank, client] : rollouts) client->CancelAll();
}

void WorkerPool::DetectLostAndCancelCalls() {
  for (const WorkerEntry& lost : registry_.DetectLost()) {
    const std::string name = lost.key().Text();
    LogWarn("{}: treating it as lost.",
            lost.stands_still
                ? name + ": " + StandstillText(lost.news.progress)
                : "No heartbeat from " + name + " for cluster.heartbeat_timeout_seconds");
  }
  const MutexLock lock(clients_mutex_);
  for (const auto& [rank, client] : trainers_) {
    if (client && !IsCurrent(registry_, {WorkerRole::kTrainer, rank}, client->incarnation())) {
      client->CancelAll();
    }
  }
  for (const auto& [rank, client] : rollouts_) {
    if (client && !IsCurrent(registry_, {WorkerRole::kRollout, rank}, client->incarnation())) {
      client->CancelAll();
    }
  }
}

void ShutDownWorkers(WorkerPool& pool) {
  const Topology& workers = pool.topology();
  const auto running =
      std::make_shared<RunningCalls>(static_cast<size_t>(workers.trainers + workers.rollouts));
  const auto end = [running](const absl::Status&) { running->End(); };
  const auto shut_down = [&](const auto& worker) {
    worker.ok() ? (*worker)->Shutdown(end) : running->End();
  };
  for (int rank = 0; rank < workers.rollouts; ++rank) shut_down(pool.rollout(rank));
  for (int rank = 0; rank < workers.trainers; ++rank) shut_down(pool.trainer(rank));
  running->WaitForAll();
}

}  // namespace tandem
