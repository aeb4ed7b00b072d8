#include "controller/store/record_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "common/base/disk_refusal.h"
#include "common/base/log.h"
#include "common/formats/file_io.h"
#include "controller/store/run_file.h"

namespace tandem {
namespace {

int OpenRecordFile(const std::string& path) {
  return open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

}  // namespace

RecordFile::RecordFile(std::string path, std::string contents)
    : path_(std::move(path)), contents_(std::move(contents)), fd_(OpenRecordFile(path_)) {}

RecordFile::~RecordFile() {
  const absl::Status written = Flush();
  if (!written.ok()) LogWarn("{} are lost: {}", contents_, std::string(written.message()));
  Close();
  TellDropped();
}

void RecordFile::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

bool RecordFile::Append(const std::string& record) {
  const int error = Write(held_back_ + record);
  if (error == 0) {
    held_back_.clear();
    TellDropped();
    return true;
  }
  if (WaitingMayHelp(error)) {
    held_back_ += record;
    return true;
  }
  if (dropped_++ == 0) {
    LogWarn("cannot write {} to {}: {}; the run continues and drops them until it can", contents_,
            path_, std::strerror(error));
  }
  return false;
}

absl::Status RecordFile::Flush() {
  if (held_back_.empty()) return absl::OkStatus();
  const int error = Write(held_back_);
  if (error == 0) {
    held_back_.clear();
    return absl::OkStatus();
  }
  return WithDiskRefused(RunFileError(path_, "writing", error));
}

int RecordFile::Write(const std::string& records) {
  if (fd_ < 0) fd_ = OpenRecordFile(path_);
  const int64_t end = fd_ < 0 ? -1 : lseek(fd_, 0, SEEK_END);
  if (end < 0) return errno;
  return AppendOrCutBack(fd_, records, end, Sync::kNo).error;
}

void RecordFile::TellDropped() {
  const int64_t dropped = std::exchange(dropped_, 0);
  if (dropped == 0) return;
  LogWarn("{} records of {} were dropped because {} could not be written", dropped, contents_,
          path_);
}

}  // namespace tandem
