// Files and directories that appear complete or not at all: they are written under
// `<path>.partial`, synced and renamed. The next writer removes what a killed process left under
// that name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "common/formats/mapping_guard.h"

namespace tandem {

// Until Commit, the bytes of `path` are in a file with this suffix, which readers ignore.
inline constexpr char kPartialSuffix[] = ".partial";
std::string PartialPath(const std::string& path);

// One writer per path; not thread-safe. Errors by IoErrorCode: ResourceExhausted if the disk, a
// quota or a file size limit is full, with the path, the requested bytes and the bytes written so
// far; NotFound or PermissionDenied for the directory; DataLoss if the device fails.
class AtomicFile {
 public:
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(const std::string& path);
  // Removes the partial file unless committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const std::string& path() const { return path_; }
  // Optional: allocates the disk space now, so that a full disk is noticed before the work is done.
  absl::Status Reserve(uint64_t bytes);
  // Appends after the last Append.
  absl::Status Append(const void* data, size_t bytes);
  absl::Status WriteAt(uint64_t offset, const void* data, size_t bytes);
  // fsync, rename over `path`, fsync the directory. Nothing may be written afterwards.
  absl::Status Commit();

 private:
  AtomicFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_;
  uint64_t appended_ = 0;
};

// Create, Append, Commit.
absl::Status WriteFileAtomically(const std::string& path, const std::string& content);

// Returns false also if this cannot be determined.
bool PathExists(const std::string& path);

// The whole text of a file; errors as MappedFile::Open.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path);

class AtomicDirectory {
 public:
  // What to do if `path` is a directory that is not empty.
  enum class IfExists { kRefuse, kReplace };

  // Makes an empty `<path>.partial` and missing parents. Write synced files into partial_path().
  // AlreadyExists with kRefuse; with kReplace the old directory stays complete until Commit, which
  // then deletes it with its contents.
  static absl::StatusOr<std::unique_ptr<AtomicDirectory>> Create(
      const std::string& path, IfExists if_exists = IfExists::kRefuse);
  // Removes the partial directory unless committed.
  ~AtomicDirectory();
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string partial_path() const { return PartialPath(path_); }
  absl::Status Commit();

 private:
  explicit AtomicDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
  bool committed_ = false;
};

// Makes a rename in `directory` durable.
absl::Status SyncDirectory(const std::string& directory);

// A file mapped read-only. Immutable and thread-safe. The bytes are valid while the object lives.
// Writers here replace files by rename and never rewrite them; where another program cuts the file
// short meanwhile, what it has lost reads as zeros and CheckWhole tells.
class MappedFile {
 public:
  // Errors by IoErrorCode name the path and the system's reason. An empty file maps to zero bytes.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  // Call after reading and before the bytes are used. DataLoss: the file has become shorter since
  // it was opened.
  absl::Status CheckWhole() const;
  // Starts to read [first, first + bytes), which is inside the file, and nothing else: turns off
  // the system's readahead for that range, which is megabytes on some machines. Best effort.
  void ReadExactly(const void* first, size_t bytes) const;
  // Drops the pages that are completely inside [first, first + bytes) from the process. The next
  // access reads them again.
  void LetGo(const void* first, size_t bytes) const;

 private:
  struct Identity {
    uint64_t device = 0;
    uint64_t inode = 0;
  };
  MappedFile(std::string path, const uint8_t* data, size_t size, Identity identity)
      : path_(std::move(path)), data_(data), size_(size), identity_(identity), guard_(data, size) {}
  std::string path_;
  const uint8_t* data_;
  size_t size_;
  Identity identity_;
  MappingGuard guard_;
};

}  // namespace tandem
