// Reads a saved batch (saved_batch.h), whoever wrote it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/formats/files.h"
#include "controller/store/saved_batch.h"

namespace tandem {

// Immutable after Open; thread-safe.
class BatchReader {
 public:
  // Reads the whole file once, for its digest, and keeps the header. InvalidArgument: no file, or
  // not one of these; Unimplemented: of a newer version; DataLoss: cut short, or other bytes than
  // were written; NotFound, PermissionDenied: as MappedFile. Every message says what to do.
  static absl::StatusOr<std::unique_ptr<const BatchReader>> Open(const std::string& path);

  const SavedBatchInfo& info() const { return header_.info; }
  size_t size() const { return header_.entries.size(); }
  int64_t file_bytes() const { return static_cast<int64_t>(file_->size()); }
  uint32_t version() const { return version_; }
  const std::string& path() const { return file_->path(); }

  // Sample `i`, in order of sample id, without its arrays.
  const SavedSample& Meta(size_t i) const { return header_.entries[i].meta; }
  // With them.
  SavedSample Read(size_t i) const;

 private:
  explicit BatchReader(std::shared_ptr<const MappedFile> file) : file_(std::move(file)) {}
  // Whether every array lies in the file and has its length.
  absl::Status CheckPlaces(const BatchEntry& entry, uint64_t arrays_end) const;
  template <typename T>
  void ReadArray(const BatchEntry& entry, const char* name, std::vector<T>& values) const;

  std::shared_ptr<const MappedFile> file_;
  uint32_t version_ = 0;
  BatchHeader header_;
};

// Writes a saved batch (saved_batch.h), whole or not at all, one sample in memory at a time.

// Not thread-safe. Errors as AtomicFile.
class BatchWriter {
 public:
  static absl::StatusOr<std::unique_ptr<BatchWriter>> Create(const std::string& path);
  ~BatchWriter();

  // InvalidArgument: arrays whose lengths do not fit.
  absl::Status Add(const SavedSample& sample);
  // Nothing is there before this returns OK.
  absl::Status Commit(const SavedBatchInfo& info);

 private:
  struct State;
  explicit BatchWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tandem
