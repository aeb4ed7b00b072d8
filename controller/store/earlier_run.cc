#include "controller/store/earlier_run.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/base/status.h"
#include "common/formats/files.h"
#include "controller/store/run_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// What a run writes into its directory and a new run would replace. SQLite's log goes before its
// database: alone, it cannot be taken for that of the database which the new run creates.
constexpr std::array kRecords = {
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

std::string EarlierRun::Folder() const {
  if (what_ == SetAside::kNothing) return "";
  const bool records = what_ == SetAside::kWholeRun &&
                       std::any_of(kRecords.begin(), kRecords.end(), [this](const char* name) {
                         return HasContents(fs::path(run_dir_) / name);
                       });
  if (!records && !checkpoints_.HasAfter(LastKept())) return "";
  return UnusedPreviousPath(checkpoints_.dir());
}

absl::StatusOr<std::string> EarlierRun::MoveRecords(const std::string& folder) const {
  std::string target = folder;
  for (const char* name : kRecords) {
    const fs::path from = fs::path(run_dir_) / name;
    std::error_code error;
    if (!fs::exists(from, error)) continue;
    fs::rename(from, fs::path(target) / name, error);
    if (error == std::errc::cross_device_link && target == folder) {
      target = UnusedPreviousPath(run_dir_ + "/records");
      TANDEM_RETURN_IF_ERROR(MakeFolder(target));
      fs::rename(from, fs::path(target) / name, error);
    }
    if (error) {
      return MakeStatus(IoErrorCode(error.value()),
                        "cannot move {} of an earlier run to {}: {}; move it away, or choose "
                        "another cluster.run_dir",
                        from.string(), target, error.message());
    }
  }
  TANDEM_RETURN_IF_ERROR(SyncDirectory(target));
  TANDEM_RETURN_IF_ERROR(SyncDirectory(run_dir_));
  return target;
}

absl::StatusOr<std::string> EarlierRun::Move() {
  const std::string folder = Folder();
  if (folder.empty()) return folder;
  TANDEM_RETURN_IF_ERROR(MakeFolder(folder));
  std::string text = folder;
  if (what_ == SetAside::kWholeRun) {
    TANDEM_ASSIGN_OR_RETURN(const std::string records, MoveRecords(folder));
    if (records != folder) text += ", its records in " + records;
  }
  // The checkpoints are last, and with them the mark of a finished run.
  TANDEM_RETURN_IF_ERROR(checkpoints_.MoveAfter(LastKept(), folder));
  return text;
}

}  // namespace tandem
