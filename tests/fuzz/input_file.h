// An input as a file of memory, for readers that take a path.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include <sys/mman.h>
#include <unistd.h>

namespace tandem::fuzz {

class InputFile {
 public:
  explicit InputFile(std::string_view bytes) : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
    if (fd_ < 0) throw std::runtime_error("memfd_create failed");
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t written = ::write(fd_, bytes.data() + done, bytes.size() - done);
      if (written <= 0) throw std::runtime_error("writing to memory failed");
      done += static_cast<size_t>(written);
    }
  }
  ~InputFile() { ::close(fd_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

}  // namespace tandem::fuzz
