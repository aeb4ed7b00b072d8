#include "controller/store/record_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/status.h"

namespace tandem {
namespace {

int OpenRecordFile(const std::string& path) {
  return open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

absl::Status RecordFileError() {
  const int error = errno;
  return MakeStatus(IoErrorCode(error), "{}", std::strerror(error));
}

}  // namespace

RecordFile::RecordFile(std::string path, std::string contents)
    : path_(std::move(path)), contents_(std::move(contents)), fd_(OpenRecordFile(path_)) {}

RecordFile::~RecordFile() {
  Close();
  TellDropped();
}

void RecordFile::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

bool RecordFile::Append(const std::string& record) {
  const absl::Status written = Write(record);
  if (written.ok()) {
    TellDropped();
    return true;
  }
  if (dropped_++ == 0) {
    LogWarn("cannot write {} to {}: {}; the run continues and drops them until it can", contents_,
            path_, std::string(written.message()));
  }
  return false;
}

absl::Status RecordFile::Write(const std::string& record) {
  if (fd_ < 0) fd_ = OpenRecordFile(path_);
  if (fd_ < 0) return RecordFileError();
  const off_t end = lseek(fd_, 0, SEEK_END);
  for (size_t done = 0; done < record.size();) {
    const ssize_t written = write(fd_, record.data() + done, record.size() - done);
    if (written >= 0) {
      done += static_cast<size_t>(written);
    } else if (errno != EINTR) {
      const absl::Status failure = RecordFileError();
      // A reader would take the beginning of this record and the next one for a single record.
      if (end >= 0) (void)!ftruncate(fd_, end);
      return failure;
    }
  }
  return absl::OkStatus();
}

void RecordFile::TellDropped() {
  const int64_t dropped = std::exchange(dropped_, 0);
  if (dropped == 0) return;
  LogWarn("records of {} that were dropped, as {} could not be written: {}", contents_, path_,
          dropped);
}

}  // namespace tandem
