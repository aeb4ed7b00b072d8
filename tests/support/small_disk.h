// A small file system of its own, for tests that fill a disk. Only root can mount one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <sys/mount.h>

#include "tests/support/temp_dir.h"

namespace tandem::testing {

class SmallDisk {
 public:
  SmallDisk(std::filesystem::path path, int64_t kibibytes) : path_(std::move(path)) {
    std::filesystem::create_directories(path_);
    const std::string options = fmt::format("size={}k,mode=0700", kibibytes);
    mounted_ = mount("tmpfs", path_.c_str(), "tmpfs", 0, options.c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool mounted() const { return mounted_; }
  const std::filesystem::path& path() const { return path_; }
  int64_t free_bytes() const {
    return static_cast<int64_t>(std::filesystem::space(path_).available);
  }
  // Leaves room for `left` bytes, rounded down to a page; Empty gives the rest back.
  void Fill(int64_t left) const {
    const int64_t bytes = free_bytes() - left;
    if (bytes > 0) {
      std::ofstream(path_ / "filler", std::ios::app)
          << std::string(static_cast<size_t>(bytes), 'x') << std::flush;
    }
  }
  void Empty() const { std::filesystem::remove(path_ / "filler"); }

 private:
  std::filesystem::path path_;
  bool mounted_ = false;
};

inline bool CanMountDisks() {
  const TempDir dir;
  return SmallDisk(dir.path() / "disk", 64).mounted();
}

}  // namespace tandem::testing
