// The file of a Unix socket, which goes with its listener.
#pragma once

#include <string>

#include <sys/types.h>

namespace tandem {

// Removes the file that lies at a path when this is made. One that another process has put in its
// place meanwhile stays: where hosts share a run directory, the successor of a worker may listen at
// the same path before the worker ends. Must go before the listening descriptor is closed: until
// then no other file gets the number by which this one is known again.
class SocketFile {
 public:
  explicit SocketFile(std::string path);
  SocketFile(const SocketFile&) = delete;
  ~SocketFile();
  void Remove() const;

 private:
  const std::string path_;
  dev_t device_ = 0;
  ino_t number_ = 0;
};

}  // namespace tandem
