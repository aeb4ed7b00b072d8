#include "common/process/files/socket_file.h"

#include <utility>

#include <sys/stat.h>
#include <unistd.h>

namespace tandem {

SocketFile::SocketFile(std::string path) : path_(std::move(path)) {
  struct stat made {};
  if (lstat(path_.c_str(), &made) != 0) return;
  device_ = made.st_dev;
  number_ = made.st_ino;
}

SocketFile::~SocketFile() { Remove(); }

void SocketFile::Remove() const {
  struct stat now {};
  if (lstat(path_.c_str(), &now) != 0) return;
  if (now.st_dev == device_ && now.st_ino == number_) unlink(path_.c_str());
}

}  // namespace tandem
