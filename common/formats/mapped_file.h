// A file mapped read-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

namespace tandem {

// Immutable and thread-safe. The bytes stay valid while the object lives; the file must not be
// truncated meanwhile (the kernel would kill the reader), which is why writers here replace files
// by rename and never rewrite them.
class MappedFile {
 public:
  // Errors by IoErrorCode name the path and the system's reason. An empty file
  // maps to zero bytes.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  // Starts to read [first, first + bytes), which lies in the file, and no more: the system's own
  // reading ahead, of megabytes on some machines, is off there from now on. Best effort.
  void ReadExactly(const void* first, size_t bytes) const;
  // The process lets go of the pages that lie in [first, first + bytes) whole, as it has no use for
  // them for now: the next touch brings them back.
  void LetGo(const void* first, size_t bytes) const;

 private:
  MappedFile(std::string path, const uint8_t* data, size_t size)
      : path_(std::move(path)), data_(data), size_(size) {}
  std::string path_;
  const uint8_t* data_;
  size_t size_;
};

}  // namespace tandem
