// Modes of files, and the umask of a test.
#pragma once

#include <string>

#include <sys/stat.h>

namespace tandem::testing {

// The permission bits of `path` itself, -1 if there is none.
inline int ModeOf(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 ? static_cast<int>(info.st_mode & 07777) : -1;
}

class UmaskOf {
 public:
  explicit UmaskOf(mode_t mask) : before_(umask(mask)) {}
  ~UmaskOf() { umask(before_); }
  UmaskOf(const UmaskOf&) = delete;
  UmaskOf& operator=(const UmaskOf&) = delete;

 private:
  const mode_t before_;
};

}  // namespace tandem::testing
