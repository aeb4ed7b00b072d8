#include "controller/store/record_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/formats/file_io.h"

namespace tandem {
namespace {

int OpenRecordFile(const std::string& path) {
  return open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
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
  const int error = Write(record);
  if (error == 0) {
    TellDropped();
    return true;
  }
  if (dropped_++ == 0) {
    LogWarn("cannot write {} to {}: {}; the run continues and drops them until it can", contents_,
            path_, std::strerror(error));
  }
  return false;
}

int RecordFile::Write(const std::string& record) {
  if (fd_ < 0) fd_ = OpenRecordFile(path_);
  const int64_t end = fd_ < 0 ? -1 : lseek(fd_, 0, SEEK_END);
  if (end < 0) return errno;
  return AppendOrCutBack(fd_, record, end, Sync::kNo).error;
}

void RecordFile::TellDropped() {
  const int64_t dropped = std::exchange(dropped_, 0);
  if (dropped == 0) return;
  LogWarn("records of {} that were dropped, as {} could not be written: {}", contents_, path_,
          dropped);
}

}  // namespace tandem
