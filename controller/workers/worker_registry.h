// The workers of a job: registration, incarnations, heartbeats, losses. Takes the time from
// a Clock, and what it knows of processes from its options.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/base/thread_annotations.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/types/host_id.h"
#include "common/types/ledger_snapshot.h"
#include "common/types/numerics_choices.h"
#include "common/types/topology.h"
#include "common/types/worker_key.h"
#include "common/types/worker_load.h"
#include "controller/workers/agents/active_rollouts.h"

namespace tandem {

// A worker's description of itself at registration.
struct Announcement {
  int protocol = 0;
  WorkerKey key;
  std::string address;  // of its gRPC server
  HostId host;
  std::string device;      // "cpu:0"; for a GPU its number in the worker's process
  std::string boot_nonce;  // random per process start
  int64_t pid = 0;
  std::string numerics_class;  // empty until known
  std::string kernel_set;      // empty until known
  KernelChoices numerics_choices;
  std::string build;     // shown to users: version, commit, flags
  std::string build_id;  // BuildId(): equal for builds that may work together
  int64_t device_memory_bytes = 0;
  std::string tokenizer_digest;  // empty until known, and for workers without a tokenizer
  int64_t incarnation = 0;       // kept from an earlier controller; 0: none
  std::string device_uuid;       // of a GPU, equal in all processes; empty on a CPU
  std::string process_start;     // OwnProcessStart of the worker
  std::string data_address;      // of a trainer that has peers on other hosts; empty until known
};

// What a worker's engine is at, by the worker's own account (EngineProgress of controller.proto).
struct EngineProgress {
  int64_t moves = 0;         // MovesOfProcess: of all its threads, not of the engine's alone
  std::string activity;      // "attention, layer 7"; empty: no work is due
  absl::Duration still_for;  // since the last move while work is due
};

// The contents of a heartbeat.
struct HeartbeatNews {
  std::string phase;
  int64_t version = -1;
  std::string last_action;
  LedgerSnapshot ledger;
  std::string numerics_class;
  EngineProgress progress;
  std::optional<GeneratorLoad> generation;  // of a rollout
  std::optional<TrainingLoad> training;     // of a trainer
};

// How fast a number that only grows does so, as seen about once a second.
struct GrowthRate {
  std::optional<Instant> since;  // of `value`; nullopt: nothing was seen yet
  int64_t value = 0;
  double per_second = 0;

  void Look(int64_t value_now, Instant now);
};

struct WorkerEntry {
  enum class State { kStarting, kReady, kLost };

  Announcement announcement;
  int64_t incarnation = 0;
  State state = State::kStarting;
  Instant last_heartbeat;
  HeartbeatNews news;
  GrowthRate generated_tokens;  // of a rollout
  bool stands_still = false;    // its last heartbeat told no progress for progress_limit
  // RegistryOptions::process_start at its registration; empty: its process is not seen from here.
  std::string process_start;
  bool ended = false;            // its process has, as its host's agent saw, or counts as ended
  bool replaced = false;         // another host is to run it: its process, if it lives, must end
  int64_t last_incarnation = 0;  // the highest that its rank has had
  bool restored = false;         // of an earlier controller, and not back since
  // Set by WorkerRegistry::Workers for restored workers: how much longer the rank is reserved for
  // this process. Zero or less: not reserved, for example because the process has ended.
  absl::Duration held_for;

  const WorkerKey& key() const { return announcement.key; }
};

// "no progress for 2m30s, in attention, layer 7"
std::string StandstillText(const EngineProgress& progress);

// Why a worker is lost: it did not answer, its process has ended, or its host is lost and another
// is to run it.
enum class WorkerLoss { kNoAnswer, kEnded, kReplaced };

// Which workers WorkerRegistry::Workers tells of.
enum class WorkerChoice { kRegistered, kRestoredToo, kLostAndRestored };

struct RegistryOptions {
  Topology topology;
  // Those that are expected; null: all, for ever.
  std::shared_ptr<const ActiveRollouts> rollouts;
  // Workers may be on any host and, apart, share a device, as the controller moves them itself.
  bool any_host = false;
  absl::Duration heartbeat_timeout = absl::Seconds(10);
  // Longer than a worker takes to end itself when its engine stands still (ProgressWatchdog).
  absl::Duration progress_limit = absl::InfiniteDuration();
  absl::Duration register_timeout = absl::Seconds(60);  // covers what a worker loads
  absl::Duration controller_lost = absl::Seconds(180);  // then a worker without controller ends
  std::string tokenizer_digest;                         // of the controller's own tokenizer
  std::string build;                                    // of the controller
  std::string build_id;                                 // of the controller
  bool allow_other_build = false;
  HostId host;  // the controller's
  // ProcessStart of common/process/process_identity.h: tells a process of this host that has ended.
  // By default none is seen, as from within a container.
  std::function<std::string(int64_t pid)> process_start = [](int64_t) { return std::string(); };
  std::string own_process_start;  // OwnProcessStart of the controller
  // Gets what each heartbeat of a rollout tells of its load; may be empty. Called within a lock: it
  // must not call the registry.
  std::function<void(int rank, const GeneratorLoad& load)> on_load;
};

// States: a worker is starting until its numerics class is known, then ready. It becomes lost when
// no heartbeat arrives for heartbeat_timeout, when its heartbeats report no progress for
// progress_limit, or when a call to it fails. The next heartbeat that reports progress makes it
// ready again; one that is lost and still reports none is told to end, and counts as silent from
// then on. Ranks: a process that asks for a taken rank is refused while the holder is alive;
// otherwise it takes the rank and gets a new incarnation. A holder that the controller sees in
// /proc is dead when /proc no longer lists it. Any other holder (another host or container) counts
// as dead when the agent of its host says so, and after heartbeat_timeout without a message, or
// register_timeout while it is starting. A lost holder also gives up its rank after that time. A
// holder from an earlier controller that does not register again keeps its rank for
// heartbeat_timeout or, if it is seen in /proc, until it ends, at most controller_lost.
// Thread-safe.
class WorkerRegistry {
 public:
  WorkerRegistry(RegistryOptions options, Clock& clock)
      : options_(std::move(options)), clock_(clock) {}

  // Reserves ranks for the workers of earlier controllers, which are lost or starting. Call before
  // any worker registers. Workers that come back keep their incarnation; new ones get a higher one.
  void Reserve(std::vector<WorkerEntry> earlier);

  // Returns the worker's incarnation; the same boot_nonce gets the same one.
  // InvalidArgument: protocol or rank; FailedPrecondition: another build where that is not allowed,
  // a host, device or address that contradicts the topology, numerics classes or choices mixed,
  // tokenizers differ; Aborted: a worker of an earlier controller whose rank has been taken since;
  // AlreadyExists: the rank's process lives, and the caller may try again when it has ended.
  absl::StatusOr<int64_t> Register(const Announcement& announcement);

  // NotFound: the worker is unknown (the controller was restarted) and must register again.
  // Aborted: it was replaced. Internal: it is lost, as it stands still, and must end.
  // FailedPrecondition: numerics classes mixed.
  absl::Status Heartbeat(const WorkerKey& key, int64_t incarnation, HeartbeatNews news);

  // Keeps a memory ledger that is newer than the worker's last heartbeat.
  void NoteLedger(const WorkerKey& key, const LedgerSnapshot& ledger);

  // OK, or Aborted / NotFound as for Heartbeat.
  absl::Status CheckCurrent(const WorkerKey& key, int64_t incarnation) const;

  // Marks workers without a heartbeat for heartbeat_timeout, or without progress for
  // progress_limit, as lost; returns those marked now.
  std::vector<WorkerEntry> DetectLost();
  // Marks the worker lost because a call to it failed; its process may live, and then keeps the
  // rank. kEnded: the agent of its host saw the process end, so that the rank is free. kReplaced:
  // the rank is free as well, and the process, should it live, is told to end.
  void MarkLost(const WorkerKey& key, int64_t incarnation, WorkerLoss loss = WorkerLoss::kNoAnswer);

  std::optional<WorkerEntry> Find(const WorkerKey& key) const;
  // Ordered by key; then, unless only those that have registered are chosen, those given to Reserve
  // whose ranks nobody has taken since.
  std::vector<WorkerEntry> Workers(WorkerChoice choice = WorkerChoice::kRegistered) const;
  // The incarnation of the ready worker of that rank, or nullopt.
  std::optional<int64_t> ReadyIncarnation(const WorkerKey& key) const;

  // Every expected worker that is not ready, with what is known: "rollout 1 (never registered)".
  // Empty: complete.
  std::vector<std::string> Missing() const;
  // A message that names both builds if the worker's differs from the controller's, else empty.
  std::string OtherBuild(const Announcement& announcement) const;
  // The controller's build, then "; rollout 0: ..." for each worker of another.
  std::string builds() const;
  // The common numerics class, "" while unknown.
  std::string numerics_class() const;
  // The kernel sets in use, such as "amx" or "avx2, avx512f", "" while unknown.
  std::string kernel_sets() const;

 private:
  // The start time of the announced process if /proc of this host certainly shows that one under
  // its number; else "".
  std::string SeenStart(const Announcement& announcement) const;
  bool IsSeen(const WorkerEntry& entry) const;  // its process lives
  // The silence after which a worker gives up its rank.
  absl::Duration LongestSilence(const WorkerEntry& entry, bool seen) const;
  // How long its rank is kept for the worker from now on, if it stays silent; zero or less: not.
  absl::Duration HeldFor(const WorkerEntry& entry) const;
  // What Missing says of a worker that has not registered.
  std::string AbsenceText(const WorkerKey& key) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(workers_mutex_);
  // Who had the rank last: a worker, or one of an earlier controller. Null: nobody.
  const WorkerEntry* LastHolder(const WorkerKey& key) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(workers_mutex_);
  // Whether the announced process may have the rank of `holder`, another process.
  absl::Status CheckFree(const Announcement& announcement, const WorkerEntry& holder) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(workers_mutex_);
  // Whether the worker's host and device are those that the topology gives it: the host of its
  // neighbours in rank; the partner's device or, apart, a GPU that no other worker has.
  absl::Status CheckPlace(const Announcement& announcement) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(workers_mutex_);
  absl::Status CheckPartner(const Announcement& announcement) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(workers_mutex_);
  absl::Status CheckOwnDevice(const Announcement& announcement) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(workers_mutex_);
  // Whether the controller and, of several hosts, trainers can reach it.
  absl::Status CheckAddresses(const Announcement& announcement) const;
  // Whether workers on other machines that call it, and those that it calls, announce addresses
  // that lead there.
  absl::Status CheckPeers(const Announcement& announcement) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(workers_mutex_);
  // Whether it is on one host with the ranks that the configuration puts there, and with no others;
  // unless options say any_host.
  absl::Status CheckHost(const Announcement& announcement) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(workers_mutex_);
  // "trainers are on a (boot 1f2e3d4c): ranks 0, 1; on b (boot 1f2e3d4c): rank 2", of those of
  // `role` that are not lost, with `comer`.
  std::string HostsText(WorkerRole role, const Announcement& comer) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(workers_mutex_);
  absl::Status CheckAnnouncement(const Announcement& announcement) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(workers_mutex_);
  // Walks all workers: heartbeats call CheckNumericsOf.
  absl::Status CheckNumerics(const WorkerKey& key, const std::string& numerics_class) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(workers_mutex_);
  // The same for a heartbeat of `entry`. All workers that are not lost have one class, so one of
  // them that tells the same again is compared with nobody.
  absl::Status CheckNumericsOf(const WorkerEntry& entry, const std::string& numerics_class) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(workers_mutex_);
  // FailedPrecondition names the first part that another worker computes by another kernel.
  absl::Status CheckChoices(const Announcement& announcement) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(workers_mutex_);
  absl::Status CheckCurrentLocked(const WorkerKey& key, int64_t incarnation) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(workers_mutex_);

  const RegistryOptions options_;
  Clock& clock_;
  mutable Mutex workers_mutex_;
  std::map<WorkerKey, WorkerEntry> workers_ ABSL_GUARDED_BY(workers_mutex_);
  std::map<WorkerKey, WorkerEntry> earlier_ ABSL_GUARDED_BY(workers_mutex_);
};

}  // namespace tandem
