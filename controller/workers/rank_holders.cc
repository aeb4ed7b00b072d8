#include "controller/workers/rank_holders.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#include <absl/strings/string_view.h>
#include <nlohmann/json.hpp>

#include "common/base/json_integer.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/process/files/private_files.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLargestFile = 4 << 20;                 // enough for the maximum number of ranks
constexpr int64_t kMostIncarnations = int64_t{1} << 53;  // so that incrementing cannot overflow

Json ToJson(const WorkerEntry& entry) {
  const Announcement& announcement = entry.announcement;
  return {{"role", RoleName(entry.key().role)},
          {"rank", entry.key().rank},
          {"incarnation", entry.incarnation},
          {"last_incarnation", entry.last_incarnation},
          {"starting", entry.state == WorkerEntry::State::kStarting},
          {"address", announcement.address},
          {"boot_id", announcement.host.boot_id},
          {"node", announcement.host.node},
          {"boot_nonce", announcement.boot_nonce},
          {"pid", announcement.pid},
          {"process_start", entry.process_start}};
}

int64_t IncarnationOf(const Json& json) {
  return std::clamp<int64_t>(IntegerOf<int64_t>(json), 0, kMostIncarnations);
}

// A worker that has not come back to the new controller counts as lost: it holds its rank while it
// may still be on its way.
WorkerEntry FromJson(const Json& json) {
  const bool is_trainer = json.at("role") == RoleName(WorkerRole::kTrainer);
  WorkerEntry entry;
  entry.announcement = {.key = {is_trainer ? WorkerRole::kTrainer : WorkerRole::kRollout,
                                IntegerOf<int>(json.at("rank"))},
                        .address = json.at("address"),
                        // Earlier builds wrote no node.
                        .host = {.boot_id = json.at("boot_id"), .node = json.value("node", "")},
                        .boot_nonce = json.at("boot_nonce"),
                        .pid = IntegerOf<int64_t>(json.at("pid"))};
  entry.incarnation = IncarnationOf(json.at("incarnation"));
  entry.last_incarnation = IncarnationOf(json.at("last_incarnation"));
  entry.state =
      json.at("starting").get<bool>() ? WorkerEntry::State::kStarting : WorkerEntry::State::kLost;
  entry.process_start = json.at("process_start");
  return entry;
}

std::optional<std::vector<WorkerEntry>> Parse(const std::string& text) {
  std::vector<WorkerEntry> entries;
  try {
    for (const Json& json : Json::parse(text)) entries.push_back(FromJson(json));
  } catch (const Json::exception&) {
    return std::nullopt;
  }
  return entries;
}

}  // namespace

std::vector<WorkerEntry> RankHolders::Read() const {
  const absl::StatusOr<std::string> text = ReadPrivateFile(path_, kLargestFile);
  if (absl::IsNotFound(text.status())) return {};
  const auto entries = text.ok() ? Parse(*text) : std::nullopt;
  if (entries) return *entries;
  LogWarn(
      "{} is passed over ({}): until the workers of this run have registered again, another "
      "process could take their ranks",
      path_, text.ok() ? "it is not a list of workers" : std::string(text.status().message()));
  return {};
}

RankHolders::RankHolders(const std::string& run_dir) : RankHolders(run_dir, WritePrivateFile) {}

RankHolders::RankHolders(const std::string& run_dir, Writer write)
    : path_(run_dir + "/workers.json"),
      write_(std::move(write)),
      thread_("rank holders", [this] { WriteAllAsked(); }) {}

RankHolders::~RankHolders() {
  {
    const MutexLock lock(asked_mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  thread_.Join();
}

void RankHolders::Write(const WorkerRegistry& registry, std::function<void()> done) {
  const MutexLock lock(asked_mutex_);
  asked_.push_back(std::move(done));
  registry_ = &registry;
  changed_.NotifyAll();
}

bool RankHolders::Take(std::vector<std::function<void()>>* asked, const WorkerRegistry** registry) {
  const MutexLock lock(asked_mutex_);
  busy_ = false;
  changed_.NotifyAll();
  while (asked_.empty() && !ending_) changed_.Wait(asked_mutex_);
  *asked = std::exchange(asked_, {});
  *registry = registry_;
  return busy_ = !asked->empty();
}

void RankHolders::WriteAllAsked() {
  std::vector<std::function<void()>> asked;
  const WorkerRegistry* registry = nullptr;
  while (Take(&asked, &registry)) {
    WriteNow(*registry);  // it has what they ask for
    for (const auto& done : asked) done();
  }
}

int64_t RankHolders::waiting() const {
  const MutexLock lock(asked_mutex_);
  return std::ssize(asked_);
}

void RankHolders::WriteNow(const WorkerRegistry& registry) {
  Json workers = Json::array();
  for (const WorkerEntry& entry : registry.Workers(WorkerChoice::kRestoredToo))
    workers.push_back(ToJson(entry));
  std::string text = workers.dump(1) + "\n";
  if (text == written_) return;
  const absl::Status written = write_(path_, text);
  written_ = written.ok() ? std::move(text) : "";
  if (written.ok() || std::exchange(told_, true)) return;
  LogWarn(
      "cannot save which process has which rank; a restarted controller could give a rank to "
      "another process: {}",
      std::string(written.message()));
}

void RankHolders::Remove() {
  const MutexLock lock(asked_mutex_);
  while (busy_ || !asked_.empty()) changed_.Wait(asked_mutex_);
  written_.clear();
  std::error_code error;
  std::filesystem::remove(path_, error);
  if (error) LogWarn("cannot remove {}: {}", path_, error.message());
}

}  // namespace tandem
