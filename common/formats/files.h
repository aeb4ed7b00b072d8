// Files and directories that appear whole or not at all: written under `<path>.partial`, synced,
// then renamed. What a killed process left under that name is removed by the next writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "common/formats/mapping_guard.h"

namespace tandem {

// Until Commit the bytes of `path` are in a file with this suffix, which readers ignore.
inline constexpr char kPartialSuffix[] = ".partial";
std::string PartialPath(const std::string& path);

// One writer per path; not thread-safe. Errors by IoErrorCode: ResourceExhausted when the disk, a
// quota or a file size limit is full, naming the path, the bytes asked for and those already
// written; NotFound or PermissionDenied for the directory; DataLoss where the device fails.
class AtomicFile {
 public:
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(const std::string& path);
  // Removes the partial file unless committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const std::string& path() const { return path_; }
  // Takes the disk space at once, so that a full disk is met before the work is done. Optional.
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

// False also where that cannot be found out.
bool PathExists(const std::string& path);

// The whole text of a file; errors as MappedFile::Open.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path);

class AtomicDirectory {
 public:
  // What to do where `path` is a directory with something in it.
  enum class IfExists { kRefuse, kReplace };

  // Makes `<path>.partial`, empty, and missing parents. Write files into partial_path(), synced by
  // their writers. AlreadyExists with kRefuse; with kReplace the old directory stays whole until
  // Commit and is then deleted with all it holds.
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

// A file mapped read-only.

// Immutable and thread-safe. The bytes stay valid while the object lives. Writers here replace
// files by rename and never rewrite them; where another program cuts the file short meanwhile, what
// it has lost reads as zeros and CheckWhole tells.
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
  // After reading, before what was read is believed. DataLoss: the file has become shorter since it
  // was opened.
  absl::Status CheckWhole() const;
  // Starts to read [first, first + bytes), which lies in the file, and no more: the system's own
  // reading ahead, of megabytes on some machines, is off there from now on. Best effort.
  void ReadExactly(const void* first, size_t bytes) const;
  // Lets go of the pages that are wholly inside [first, first + bytes), for which the process has
  // no use for now. The next access reads them again.
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
