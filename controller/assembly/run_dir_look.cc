#include "controller/assembly/run_dir_look.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/base/io_status.h"
#include "common/base/status_macros.h"
#include "controller/store/checkpoint_index.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Deepest first.
std::vector<fs::path> MissingParts(fs::path folder) {
  std::vector<fs::path> missing;
  std::error_code error;
  for (; !folder.empty() && !fs::exists(folder, error); folder = folder.parent_path()) {
    missing.push_back(folder);
  }
  return missing;
}

absl::Status WriteAFile(const std::string& folder) {
  const std::string path = fmt::format("{}/.dry-run-{}", folder, getpid());
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) {
    return MakeStatus(IoErrorCode(errno), "cannot write into the folder {}: {}", folder,
                      std::strerror(errno));
  }
  close(fd);
  unlink(path.c_str());
  return absl::OkStatus();
}

bool IsLocked(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool locked = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(fd);
  return locked;
}

}  // namespace

absl::Status CheckWritable(const std::string& folder) {
  const std::vector<fs::path> missing = MissingParts(folder);
  absl::Status status = MakeFolder(folder);
  if (status.ok()) status = WriteAFile(folder);
  for (const fs::path& made : missing) rmdir(made.c_str());  // only while it is empty
  return status;
}

absl::Status CheckNobodyThere(const std::string& run_dir) {
  // deploy/launcher/main.cc and assembly.cc hold these while they run.
  for (const char* who : {"launcher", "controller"}) {
    const std::string lock = fmt::format("{}/{}.lock", run_dir, who);
    if (!IsLocked(lock)) continue;
    return MakeStatus(absl::StatusCode::kAlreadyExists,
                      "another {} is at work in {} and holds {}: a start would be refused; stop "
                      "it, or choose another cluster.run_dir",
                      who, run_dir, lock);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ForeseeStart(const v1::Config& config,
                                                      const ResumeOptions& options) {
  CheckpointIndex checkpoints = CheckpointIndex::LookInto(config.trainer().default_local_dir());
  TANDEM_ASSIGN_OR_RETURN(const ResumePoint point,
                          config.weight_sync().check_only()
                              ? PeekResumePoint(config, checkpoints)
                              : ChooseResumePoint(config, options, checkpoints));
  std::vector<std::string> lines;
  if (!point.note.empty()) {
    lines.push_back("a start now: " + point.note);
  } else if (point.checkpoint.empty()) {
    lines.push_back("a start now: from the model; no checkpoint is in " + checkpoints.dir());
  }
  for (const std::string& warning : point.warnings) lines.push_back("warning: " + warning);
  return lines;
}

}  // namespace tandem
