#include "controller/workers/worker_registry.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "common/base/local_address.h"
#include "common/base/status.h"
#include "common/net/comer_build.h"
#include "common/process/process_identity.h"

namespace tandem {
namespace {

// Two processes may number one GPU differently (CUDA_VISIBLE_DEVICES), so GPUs are compared by
// UUID.
bool ShareDevice(const Announcement& a, const Announcement& b) {
  if (a.host != b.host || a.device_uuid != b.device_uuid) return false;
  return !a.device_uuid.empty() || a.device == b.device;
}

// Nodes of one kernel may share a loopback interface, so the nodes' names are not looked at.
bool OnOtherMachines(const HostId& a, const HostId& b) {
  return !a.boot_id.empty() && !b.boot_id.empty() && a.boot_id != b.boot_id;
}

// The address that `caller`, on another machine, would use to reach `called`, if it leads nowhere
// but to the caller's own host; else "". A trainer sends weights to its rollouts, and trainers of
// several hosts data to each other.
std::string UnreachableAddress(const Announcement& called,
                               const Announcement& caller,
                               const Topology& topology) {
  if (caller.key.role != WorkerRole::kTrainer || !OnOtherMachines(called.host, caller.host)) {
    return "";
  }
  const bool called_is_trainer = called.key.role == WorkerRole::kTrainer;
  if (!called_is_trainer && topology.PublisherOf(called.key.rank) != caller.key.rank) return "";
  const std::string& address = called_is_trainer ? called.data_address : called.address;
  return !address.empty() && IsLocalAddress(address) ? address : "";
}

std::string LeadsNowhereText(const Announcement& called,
                             const std::string& address,
                             const std::string& caller,
                             const HostId& callers_host) {
  return fmt::format(
      "{} on {} announces {}, which reaches nobody on other machines, and {} is on {}",
      called.key.Text(), called.host.Text(), address, caller, callers_host.Text());
}

std::string AdvertiseText(const std::string& workers) {
  return fmt::format(
      "start {} with --advertise or --interface and an address that other hosts reach", workers);
}

// Whether two workers reach each other as far as they have to. The one that came later is refused,
// whichever address is wrong: of the one that is there already it cannot be changed.
absl::Status CheckReach(const Announcement& first,
                        const Announcement& comer,
                        const Topology& topology) {
  std::vector<std::string> findings, at_fault;
  for (const auto& [called, caller] : {std::pair{&first, &comer}, std::pair{&comer, &first}}) {
    const std::string address = UnreachableAddress(*called, *caller, topology);
    if (address.empty()) continue;
    findings.push_back(LeadsNowhereText(*called, address, caller->key.Text(), caller->host));
    at_fault.push_back(called->key.Text());
  }
  if (findings.empty()) return absl::OkStatus();
  const std::string comer_text = comer.key.Text();
  const std::string then =
      at_fault.front() == comer_text
          ? ""
          : fmt::format("; {} came first and runs, so stop it before, and {} is refused until then",
                        first.key.Text(), comer_text);
  return FailedPrecondition("{}: {}{}", fmt::join(findings, "; "),
                            AdvertiseText(fmt::format("{}", fmt::join(at_fault, " and "))), then);
}

absl::Status HasBeenReplaced(const WorkerEntry& worker) {
  return MakeStatus(absl::StatusCode::kAborted,
                    "{} on {} counted as lost with its host, and another host runs it or it is "
                    "left out: process {} ends",
                    worker.key().Text(), worker.announcement.host.Text(), worker.announcement.pid);
}

std::string DeviceText(const Announcement& announcement) {
  if (announcement.device_uuid.empty()) return announcement.device;
  return announcement.device + ", GPU " + announcement.device_uuid;
}

}  // namespace

std::string StandstillText(const EngineProgress& progress) {
  return fmt::format("no progress for {}, in {}",
                     absl::FormatDuration(absl::Trunc(progress.still_for, absl::Seconds(1))),
                     progress.activity);
}

absl::StatusOr<int64_t> WorkerRegistry::Register(const Announcement& announcement) {
  const MutexLock lock(workers_mutex_);
  const WorkerKey& key = announcement.key;
  TANDEM_RETURN_IF_ERROR(CheckAnnouncement(announcement));
  TANDEM_RETURN_IF_ERROR(CheckNumerics(key, announcement.numerics_class));
  TANDEM_RETURN_IF_ERROR(CheckChoices(announcement));

  const WorkerEntry* const holder = LastHolder(key);
  const bool same_process =
      holder != nullptr && holder->announcement.boot_nonce == announcement.boot_nonce;
  if (same_process && holder->replaced) return HasBeenReplaced(*holder);
  if (holder != nullptr && !same_process) {
    TANDEM_RETURN_IF_ERROR(CheckFree(announcement, *holder));
  }
  WorkerEntry entry;
  if (same_process) {
    entry = *holder;
  } else {
    const int64_t last = holder == nullptr ? 0 : holder->last_incarnation;
    entry.incarnation = announcement.incarnation != 0 ? announcement.incarnation : last + 1;
    entry.last_incarnation = std::max(last, entry.incarnation);
  }
  entry.announcement = announcement;
  // Also of a process that comes back: the controller before may have been unable to see it.
  entry.process_start = SeenStart(announcement);
  entry.restored = false;
  entry.ended = false;
  entry.stands_still = false;
  entry.last_heartbeat = clock_.Now();
  entry.news.numerics_class = announcement.numerics_class;
  entry.state = announcement.numerics_class.empty() ? WorkerEntry::State::kStarting
                                                    : WorkerEntry::State::kReady;
  workers_[key] = entry;
  earlier_.erase(key);
  return entry.incarnation;
}

void WorkerRegistry::Reserve(std::vector<WorkerEntry> earlier) {
  const MutexLock lock(workers_mutex_);
  for (WorkerEntry& entry : earlier) {
    const WorkerKey key = entry.key();
    const bool seen = SameHost(entry.announcement.host, options_.host) &&
                      SamePidNamespace(entry.process_start, options_.own_process_start);
    if (!seen) entry.process_start.clear();
    entry.last_heartbeat = clock_.Now();
    entry.last_incarnation = std::max(entry.last_incarnation, entry.incarnation);
    entry.restored = true;
    earlier_[key] = std::move(entry);
  }
}

const WorkerEntry* WorkerRegistry::LastHolder(const WorkerKey& key) const {
  for (const auto* holders : {&workers_, &earlier_}) {
    if (const auto found = holders->find(key); found != holders->end()) return &found->second;
  }
  return nullptr;
}

std::string WorkerRegistry::SeenStart(const Announcement& announcement) const {
  if (!SameHost(announcement.host, options_.host)) return "";
  // Containers of one host number their processes each for itself.
  const std::string seen = options_.process_start(announcement.pid);
  return seen == announcement.process_start ? seen : "";
}

bool WorkerRegistry::IsSeen(const WorkerEntry& entry) const {
  return !entry.process_start.empty() &&
         options_.process_start(entry.announcement.pid) == entry.process_start;
}

absl::Duration WorkerRegistry::LongestSilence(const WorkerEntry& entry, bool seen) const {
  // A starting worker loads its model and sends nothing yet.
  const bool starting = entry.state == WorkerEntry::State::kStarting;
  if (!entry.restored) return starting ? options_.register_timeout : options_.heartbeat_timeout;
  // It may have ended with its controller, so one that is not seen is not waited for any longer.
  if (!seen) return options_.heartbeat_timeout;
  const absl::Duration lost = std::max(options_.controller_lost, options_.heartbeat_timeout);
  return starting ? std::max(lost, options_.register_timeout) : lost;
}

absl::Duration WorkerRegistry::HeldFor(const WorkerEntry& entry) const {
  if (entry.ended) return absl::ZeroDuration();
  const bool seen = IsSeen(entry);
  if (!entry.process_start.empty() && !seen) return absl::ZeroDuration();
  if (seen && !entry.restored && entry.state != WorkerEntry::State::kLost) {
    return absl::InfiniteDuration();
  }
  return LongestSilence(entry, seen) - (clock_.Now() - entry.last_heartbeat);
}

absl::Status WorkerRegistry::CheckFree(const Announcement& announcement,
                                       const WorkerEntry& holder) const {
  if (announcement.incarnation != 0 && workers_.contains(announcement.key)) {
    return MakeStatus(absl::StatusCode::kAborted, "{} has been taken over by process {}",
                      announcement.key.Text(), holder.announcement.pid);
  }
  if (HeldFor(holder) <= absl::ZeroDuration()) return absl::OkStatus();
  return MakeStatus(
      absl::StatusCode::kAlreadyExists,
      "{} is held by process {} at {}, which may still be alive (last message {} ago), so "
      "process {} cannot take it: stop that process first, or start the new one with another "
      "--rank",
      announcement.key.Text(), holder.announcement.pid, holder.announcement.address,
      absl::FormatDuration(absl::Trunc(clock_.Now() - holder.last_heartbeat, absl::Seconds(1))),
      announcement.pid);
}

absl::Status WorkerRegistry::CheckPlace(const Announcement& announcement) const {
  TANDEM_RETURN_IF_ERROR(CheckAddresses(announcement));
  TANDEM_RETURN_IF_ERROR(options_.topology.apart ? CheckOwnDevice(announcement)
                                                 : CheckPartner(announcement));
  TANDEM_RETURN_IF_ERROR(CheckHost(announcement));
  return CheckPeers(announcement);
}

absl::Status WorkerRegistry::CheckAddresses(const Announcement& announcement) const {
  const bool on_own_host =
      options_.host.boot_id.empty() || SameHost(announcement.host, options_.host);
  if (!on_own_host && announcement.address.starts_with("unix:")) {
    return FailedPrecondition(
        "{} on {} listens on {}, which reaches nobody on other hosts, and the controller is on {}: "
        "start it with --listen 0.0.0.0:0 and the three TLS files, or with a port of its own",
        announcement.key.Text(), announcement.host.Text(), announcement.address,
        options_.host.Text());
  }
  if (OnOtherMachines(announcement.host, options_.host) && IsLocalAddress(announcement.address)) {
    return FailedPrecondition(
        "{}: {}",
        LeadsNowhereText(announcement, announcement.address, "the controller", options_.host),
        AdvertiseText(announcement.key.Text()));
  }
  const bool has_far_peers = announcement.key.role == WorkerRole::kTrainer &&
                             options_.topology.trainer_hosts > 1 &&
                             !announcement.numerics_class.empty();
  if (has_far_peers && announcement.data_address.empty()) {
    return FailedPrecondition(
        "{} announces no address for the data of the trainers of {} hosts: use binaries of one "
        "build",
        announcement.key.Text(), options_.topology.trainer_hosts);
  }
  return absl::OkStatus();
}

absl::Status WorkerRegistry::CheckPeers(const Announcement& announcement) const {
  for (const auto& [key, entry] : workers_) {
    if (key == announcement.key || entry.state == WorkerEntry::State::kLost) continue;
    TANDEM_RETURN_IF_ERROR(CheckReach(entry.announcement, announcement, options_.topology));
  }
  return absl::OkStatus();
}

std::string WorkerRegistry::HostsText(WorkerRole role, const Announcement& comer) const {
  std::map<HostId, std::set<int>> ranks = {{comer.host, {comer.key.rank}}};
  for (const auto& [key, entry] : workers_) {
    const bool counts =
        key.role == role && key != comer.key && entry.state != WorkerEntry::State::kLost;
    if (counts) ranks[entry.announcement.host].insert(key.rank);
  }
  std::vector<std::string> hosts;
  for (const auto& [host, of_host] : ranks) {
    hosts.push_back(fmt::format("on {}: {} {}", host.Text(), of_host.size() == 1 ? "rank" : "ranks",
                                fmt::join(of_host, ", ")));
  }
  return fmt::format("{}s are {}", RoleName(role), fmt::join(hosts, "; "));
}

absl::Status WorkerRegistry::CheckHost(const Announcement& announcement) const {
  if (options_.any_host) return absl::OkStatus();
  const WorkerKey& key = announcement.key;
  const std::string role = RoleName(key.role);
  const bool is_trainer = key.role == WorkerRole::kTrainer;
  const Topology& topology = options_.topology;
  const int hosts = is_trainer ? topology.trainer_hosts : topology.rollout_hosts;
  const int per_host = is_trainer ? topology.trainers_per_host() : topology.rollouts_per_host();
  for (const auto& [other, entry] : workers_) {
    if (other.role != key.role || other == key || entry.state == WorkerEntry::State::kLost) {
      continue;
    }
    const bool together = other.rank / per_host == key.rank / per_host;
    if (together == (entry.announcement.host == announcement.host)) continue;
    // Colocated, the rollouts' hosts are the trainers'.
    const std::string section = is_trainer || !topology.apart ? "trainer" : "rollout";
    return FailedPrecondition(
        "{} and {} are on {}, and with {}.nnodes={} for {} {}s ranks are numbered host by host, {} "
        "on each: {}; start them with other --rank, or correct {}.nnodes",
        key.Text(), other.Text(), together ? "different hosts" : "one host", section, hosts,
        is_trainer ? topology.trainers : topology.rollouts, role, per_host,
        HostsText(key.role, announcement), section);
  }
  return absl::OkStatus();
}

absl::Status WorkerRegistry::CheckPartner(const Announcement& announcement) const {
  const WorkerKey& key = announcement.key;
  const bool is_trainer = key.role == WorkerRole::kTrainer;
  const WorkerKey partner{is_trainer ? WorkerRole::kRollout : WorkerRole::kTrainer, key.rank};
  const auto found = workers_.find(partner);
  if (found == workers_.end() || found->second.state == WorkerEntry::State::kLost) {
    return absl::OkStatus();
  }
  const Announcement& other = found->second.announcement;
  if (ShareDevice(announcement, other)) return absl::OkStatus();
  return FailedPrecondition(
      "{} (device {}, host {}) and its partner {} (device {}, host {}) must share one device: "
      "start them on the same host with the same --node and --device",
      key.Text(), DeviceText(announcement), announcement.host.Text(), partner.Text(),
      DeviceText(other), other.host.Text());
}

absl::Status WorkerRegistry::CheckOwnDevice(const Announcement& announcement) const {
  if (options_.any_host) return absl::OkStatus();  // a lost host's workers may share a device
  for (const auto& [key, entry] : workers_) {
    const Announcement& other = entry.announcement;
    if (key == announcement.key || entry.state == WorkerEntry::State::kLost) continue;
    // Names of CPU devices only tell workers apart: their cores and memory are shares of the
    // host's.
    if (announcement.device_uuid.empty() || announcement.device_uuid != other.device_uuid) continue;
    return FailedPrecondition(
        "{} and {} are both on device {}, and with cluster.hybrid_engine=false every worker needs "
        "one of its own: start them with different --device",
        announcement.key.Text(), key.Text(), DeviceText(announcement));
  }
  return absl::OkStatus();
}

absl::Status WorkerRegistry::CheckAnnouncement(const Announcement& announcement) const {
  const WorkerKey& key = announcement.key;
  TANDEM_RETURN_IF_ERROR(CheckProtocol(key.Text(), announcement.protocol));
  if (!options_.allow_other_build) {
    TANDEM_RETURN_IF_ERROR(CheckSameBuild(key.Text(), {announcement.build, announcement.build_id},
                                          {options_.build, options_.build_id}));
  }
  const bool is_trainer = key.role == WorkerRole::kTrainer;
  const int count = is_trainer ? options_.topology.trainers : options_.topology.rollouts;
  if (key.rank < 0 || key.rank >= count) {
    return InvalidArgument("{} is out of range: cluster.{}s is {}, so ranks are 0 to {}",
                           key.Text(), RoleName(key.role), count, count - 1);
  }
  TANDEM_RETURN_IF_ERROR(CheckPlace(announcement));
  if (!announcement.tokenizer_digest.empty() &&
      announcement.tokenizer_digest != options_.tokenizer_digest) {
    return FailedPrecondition(
        "{} loaded another tokenizer (digest {}) than the controller (digest {}): give both the "
        "same model directory",
        key.Text(), announcement.tokenizer_digest, options_.tokenizer_digest);
  }
  return absl::OkStatus();
}

std::string WorkerRegistry::OtherBuild(const Announcement& announcement) const {
  return OtherBuildText(announcement.key.Text(), {announcement.build, announcement.build_id},
                        {options_.build, options_.build_id});
}

std::string WorkerRegistry::builds() const {
  const MutexLock lock(workers_mutex_);
  std::string builds = options_.build;
  for (const auto& [key, entry] : workers_) {
    if (OtherBuild(entry.announcement).empty()) continue;
    builds += fmt::format("; {}: {}", key.Text(), entry.announcement.build);
  }
  return builds;
}

absl::Status WorkerRegistry::CheckNumerics(const WorkerKey& key,
                                           const std::string& numerics_class) const {
  if (numerics_class.empty()) return absl::OkStatus();
  for (const auto& [other, entry] : workers_) {
    if (other == key || entry.state == WorkerEntry::State::kLost) continue;
    if (entry.news.numerics_class.empty() || entry.news.numerics_class == numerics_class) continue;
    return FailedPrecondition(
        "{} computes as {}, {} as {}: their bits would differ; run all workers on one kind of "
        "machine",
        key.Text(), numerics_class, other.Text(), entry.news.numerics_class);
  }
  return absl::OkStatus();
}

absl::Status WorkerRegistry::CheckNumericsOf(const WorkerEntry& entry,
                                             const std::string& numerics_class) const {
  const bool told =
      entry.state != WorkerEntry::State::kLost && entry.news.numerics_class == numerics_class;
  return told ? absl::OkStatus() : CheckNumerics(entry.key(), numerics_class);
}

absl::Status WorkerRegistry::CheckChoices(const Announcement& announcement) const {
  for (const auto& [other, entry] : workers_) {
    if (other == announcement.key || entry.state == WorkerEntry::State::kLost) continue;
    const KernelChoices& theirs = entry.announcement.numerics_choices;
    for (const auto& [part, choice] : announcement.numerics_choices) {
      const auto found = theirs.find(part);
      if (found == theirs.end() || found->second == choice) continue;
      return FailedPrecondition(
          "{} computes {} by {}, {} by {}: their bits would differ; run all workers on GPUs of one "
          "kind with one driver and one cuBLASLt (a worker's log says why it has its own kernels), "
          "or all with TANDEM_CUDA_LINEAR=own in their environment",
          announcement.key.Text(), part, choice, other.Text(), found->second);
    }
  }
  return absl::OkStatus();
}

absl::Status WorkerRegistry::CheckCurrentLocked(const WorkerKey& key, int64_t incarnation) const {
  const auto found = workers_.find(key);
  if (found == workers_.end()) {
    return MakeStatus(absl::StatusCode::kNotFound, "{} has not registered with this controller",
                      key.Text());
  }
  if (found->second.incarnation != incarnation) {
    return MakeStatus(absl::StatusCode::kAborted,
                      "{} incarnation {} has been replaced by incarnation {} (process {})",
                      key.Text(), incarnation, found->second.incarnation,
                      found->second.announcement.pid);
  }
  return absl::OkStatus();
}

absl::Status WorkerRegistry::CheckCurrent(const WorkerKey& key, int64_t incarnation) const {
  const MutexLock lock(workers_mutex_);
  return CheckCurrentLocked(key, incarnation);
}

void WorkerRegistry::NoteLedger(const WorkerKey& key, const LedgerSnapshot& ledger) {
  const MutexLock lock(workers_mutex_);
  if (const auto worker = workers_.find(key); worker != workers_.end()) {
    worker->second.news.ledger = ledger;
  }
}

void GrowthRate::Look(int64_t value_now, Instant now) {
  const bool goes_on = since && value_now >= value;  // not of a process that began anew
  if (goes_on && now - *since < absl::Seconds(1)) return;
  per_second =
      goes_on ? static_cast<double>(value_now - value) / absl::ToDoubleSeconds(now - *since) : 0;
  value = value_now;
  since = now;
}

absl::Status WorkerRegistry::Heartbeat(const WorkerKey& key,
                                       int64_t incarnation,
                                       HeartbeatNews news) {
  const MutexLock lock(workers_mutex_);
  TANDEM_RETURN_IF_ERROR(CheckCurrentLocked(key, incarnation));
  WorkerEntry& entry = workers_.at(key);
  if (entry.replaced) return HasBeenReplaced(entry);
  TANDEM_RETURN_IF_ERROR(CheckNumericsOf(entry, news.numerics_class));
  const bool still = news.progress.still_for >= options_.progress_limit;
  if (still && entry.stands_still && entry.state == WorkerEntry::State::kLost) {
    // Its rank is another process's after heartbeat_timeout, even if it cannot end itself.
    return Internal(
        "{} (incarnation {}, process {}) is lost, as it made {}: it ends to be started again",
        key.Text(), incarnation, entry.announcement.pid, StandstillText(news.progress));
  }
  if (news.numerics_class.empty()) news.numerics_class = entry.news.numerics_class;
  entry.news = std::move(news);
  entry.last_heartbeat = clock_.Now();
  if (entry.news.generation) {
    entry.generated_tokens.Look(entry.news.generation->generated_tokens, entry.last_heartbeat);
    if (options_.on_load) options_.on_load(key.rank, *entry.news.generation);
  }
  entry.stands_still = still;
  if (still) return absl::OkStatus();  // DetectLost sees to it
  entry.state = entry.news.numerics_class.empty() ? WorkerEntry::State::kStarting
                                                  : WorkerEntry::State::kReady;
  return absl::OkStatus();
}

std::vector<WorkerEntry> WorkerRegistry::DetectLost() {
  const MutexLock lock(workers_mutex_);
  std::vector<WorkerEntry> lost;
  for (auto& [key, entry] : workers_) {
    // A starting worker loads its model and sends nothing yet: the register timeout covers it.
    if (entry.state != WorkerEntry::State::kReady) continue;
    const bool silent = clock_.Now() - entry.last_heartbeat >= options_.heartbeat_timeout;
    if (!silent && !entry.stands_still) continue;
    entry.state = WorkerEntry::State::kLost;
    lost.push_back(entry);
  }
  return lost;
}

void WorkerRegistry::MarkLost(const WorkerKey& key, int64_t incarnation, WorkerLoss loss) {
  const MutexLock lock(workers_mutex_);
  if (!CheckCurrentLocked(key, incarnation).ok()) return;
  WorkerEntry& entry = workers_.at(key);
  entry.state = WorkerEntry::State::kLost;
  if (loss != WorkerLoss::kNoAnswer) entry.ended = true;
  if (loss == WorkerLoss::kReplaced) entry.replaced = true;
}

std::optional<WorkerEntry> WorkerRegistry::Find(const WorkerKey& key) const {
  const MutexLock lock(workers_mutex_);
  const auto found = workers_.find(key);
  if (found == workers_.end()) return std::nullopt;
  return found->second;
}

std::optional<int64_t> WorkerRegistry::ReadyIncarnation(const WorkerKey& key) const {
  const MutexLock lock(workers_mutex_);
  const auto found = workers_.find(key);
  if (found == workers_.end() || found->second.state != WorkerEntry::State::kReady) {
    return std::nullopt;
  }
  return found->second.incarnation;
}

std::vector<WorkerEntry> WorkerRegistry::Workers(WorkerChoice choice) const {
  const MutexLock lock(workers_mutex_);
  const bool lost_alone = choice == WorkerChoice::kLostAndRestored;
  std::vector<WorkerEntry> workers;
  for (const auto& [key, entry] : workers_) {
    if (!lost_alone || entry.state == WorkerEntry::State::kLost) workers.push_back(entry);
  }
  if (choice == WorkerChoice::kRegistered) return workers;
  for (const auto& [key, entry] : earlier_) {
    workers.push_back(entry);
    workers.back().held_for = HeldFor(entry);
  }
  return workers;
}

std::string WorkerRegistry::AbsenceText(const WorkerKey& key) const {
  const auto earlier = earlier_.find(key);
  if (earlier == earlier_.end()) return key.Text() + " (never registered)";
  const int64_t pid = earlier->second.announcement.pid;
  const absl::Duration held = HeldFor(earlier->second);
  if (held <= absl::ZeroDuration()) {
    return fmt::format("{} (process {} has not come back, no other registered)", key.Text(), pid);
  }
  return fmt::format("{} (held by process {} for up to {} more)", key.Text(), pid,
                     absl::FormatDuration(absl::Ceil(held, absl::Seconds(1))));
}

std::vector<std::string> WorkerRegistry::Missing() const {
  const MutexLock lock(workers_mutex_);
  std::vector<std::string> missing;
  for (const WorkerRole role : {WorkerRole::kTrainer, WorkerRole::kRollout}) {
    const int count =
        role == WorkerRole::kTrainer ? options_.topology.trainers : options_.topology.rollouts;
    for (int rank = 0; rank < count; ++rank) {
      const WorkerKey key{role, rank};
      const bool left_out =
          role == WorkerRole::kRollout && options_.rollouts && !options_.rollouts->Contains(rank);
      if (left_out) continue;
      const auto found = workers_.find(key);
      if (found == workers_.end()) {
        missing.push_back(AbsenceText(key));
      } else if (found->second.state == WorkerEntry::State::kStarting) {
        missing.push_back(key.Text() + " (registered, still starting)");
      } else if (found->second.state == WorkerEntry::State::kLost) {
        const HeartbeatNews& news = found->second.news;
        missing.push_back(
            fmt::format("{} (lost; last seen in phase {}, last action {}{})", key.Text(),
                        news.phase, news.last_action,
                        found->second.stands_still ? ", " + StandstillText(news.progress) : ""));
      }
    }
  }
  return missing;
}

std::string WorkerRegistry::kernel_sets() const {
  const MutexLock lock(workers_mutex_);
  std::set<std::string> names;
  for (const auto& [key, entry] : workers_) {
    if (!entry.announcement.kernel_set.empty()) names.insert(entry.announcement.kernel_set);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string WorkerRegistry::numerics_class() const {
  const MutexLock lock(workers_mutex_);
  for (const auto& [key, entry] : workers_) {
    if (!entry.news.numerics_class.empty()) return entry.news.numerics_class;
  }
  return "";
}

}  // namespace tandem
