#include "controller/store/earlier_run.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "common/formats/files.h"
#include "controller/store/run_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// What a run writes into its directory and a new run would replace. SQLite's log is
// moved before its database: left alone, it would be taken for the log of the new run's database.
constexpr std::array kRecordFiles = {
    "run.db-wal",  "run.db-shm", "run.db",  "metrics.jsonl", "metrics.undone.jsonl", "tensorboard",
    "report.html", "samples",    "batches", "failed_steps",  "partial_journal.jsonl"};

// Whether there is a file with contents, or a folder with anything in it.
bool HasContents(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error) && !fs::is_empty(path, error) && !error;
}

}  // namespace

EarlierRun::EarlierRun(std::string run_dir,
                       CheckpointIndex& checkpoints,
                       SetAside what,
                       int64_t step)
    : run_dir_(std::move(run_dir)), checkpoints_(checkpoints), what_(what), step_(step) {}

bool EarlierRun::HasSomething() const {
  const bool records =
      what_ == SetAside::kWholeRun &&
      std::any_of(kRecordFiles.begin(), kRecordFiles.end(),
                  [this](const char* name) { return HasContents(fs::path(run_dir_) / name); });
  return records || checkpoints_.HasAfter(LastKept());
}

std::optional<EarlierRun::Targets> EarlierRun::Interrupted() const {
  const absl::StatusOr<std::string> text = ReadWholeFile(MovingFile());
  if (!text.ok()) return std::nullopt;
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  const auto folder = [&json](const char* key) {
    return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
  };
  Targets targets{.checkpoints = folder("checkpoints"), .records = folder("records")};
  // A user may have moved the run directory, or what was set aside, to another place meanwhile.
  std::error_code error;
  if (targets.records.empty() || !fs::is_directory(targets.checkpoints, error)) return std::nullopt;
  return targets;
}

EarlierRun::Targets EarlierRun::Choose() const {
  const FolderRenames& renames = checkpoints_.renames();
  const std::string& dir = checkpoints_.dir();
  std::string parent = fs::path(dir).parent_path().string();
  if (parent.empty()) parent = ".";
  const bool beside = renames.CanMove(dir, parent);
  Targets targets{.checkpoints = UnusedPreviousPath(beside ? dir : dir + "/run")};
  targets.records = renames.CanMove(run_dir_, beside ? parent : dir)
                        ? targets.checkpoints
                        : UnusedPreviousPath(run_dir_ + "/records");
  return targets;
}

std::string EarlierRun::Folder() const {
  if (what_ == SetAside::kNothing) return "";
  if (const std::optional<Targets> begun = Interrupted()) return begun->checkpoints;
  return HasSomething() ? Choose().checkpoints : "";
}

absl::Status EarlierRun::Announce(const Targets& targets) const {
  TANDEM_RETURN_IF_ERROR(MakeFolder(targets.checkpoints));
  const Json json = {{"checkpoints", targets.checkpoints}, {"records", targets.records}};
  return WriteFileAtomically(MovingFile(), json.dump() + "\n");
}

absl::Status EarlierRun::MoveRecords(const std::string& folder) const {
  TANDEM_RETURN_IF_ERROR(MakeFolder(folder));
  for (const char* name : kRecordFiles) {
    const fs::path from = fs::path(run_dir_) / name;
    const fs::path to = fs::path(folder) / name;
    if (!PathExists(from.string())) continue;
    // A start after an interrupted move has made the folder again, or an empty file.
    if (PathExists(to.string()) && !HasContents(from)) continue;
    TANDEM_RETURN_IF_ERROR(MoveAside(checkpoints_.renames(), from.string(), to.string()));
  }
  TANDEM_RETURN_IF_ERROR(SyncDirectory(folder));
  return SyncDirectory(run_dir_);
}

absl::Status EarlierRun::Conclude() const {
  std::error_code error;
  if (!fs::remove(MovingFile(), error) && !error) return absl::OkStatus();
  if (error) return RunFileError(MovingFile(), "removing", error.value());
  return SyncDirectory(run_dir_);
}

absl::StatusOr<std::string> EarlierRun::Move() {
  std::optional<Targets> targets = Interrupted();
  if (what_ == SetAside::kNothing || (!targets && !HasSomething())) {
    TANDEM_RETURN_IF_ERROR(Conclude());
    return "";
  }
  if (!targets) {
    targets = Choose();
    TANDEM_RETURN_IF_ERROR(Announce(*targets));
  }
  std::string text = targets->checkpoints;
  if (what_ == SetAside::kWholeRun) {
    TANDEM_RETURN_IF_ERROR(MoveRecords(targets->records));
    if (targets->records != targets->checkpoints) text += ", its records in " + targets->records;
  }
  // The checkpoints are last, and with them the mark of a finished run.
  TANDEM_RETURN_IF_ERROR(checkpoints_.MoveAfter(LastKept(), targets->checkpoints));
  TANDEM_RETURN_IF_ERROR(Conclude());
  return text;
}

}  // namespace tandem
