// Reads and writes saved batches (saved_batch.h), and reads a run's .samples files.
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
  // Reads the complete file once to check its digest (of a .samples file, its header), and keeps
  // the header. InvalidArgument: not a file, not a saved batch, or a .samples file without an
  // index; Unimplemented: a newer version; DataLoss: truncated or changed; NotFound,
  // PermissionDenied: as MappedFile. Every message says how to continue.
  static absl::StatusOr<std::unique_ptr<const BatchReader>> Open(const std::string& path);

  const SavedBatchInfo& info() const { return header_.info; }
  size_t size() const { return header_.entries.size(); }
  int64_t file_bytes() const { return static_cast<int64_t>(file_->size()); }
  uint32_t version() const { return version_; }
  const std::string& path() const { return file_->path(); }

  // The `i`-th sample in order of sample id, without its arrays.
  const SavedSample& Meta(size_t i) const { return header_.entries[i].meta; }
  // The `i`-th sample with its arrays.
  SavedSample Read(size_t i) const;

 private:
  explicit BatchReader(std::shared_ptr<const MappedFile> file) : file_(std::move(file)) {}
  // Checks that every array is between two offsets of the file and has the right length.
  absl::Status CheckPlaces(const BatchEntry& entry,
                           uint64_t arrays_begin,
                           uint64_t arrays_end) const;
  template <typename T>
  void ReadArray(const BatchEntry& entry, const char* name, std::vector<T>& values) const;

  std::shared_ptr<const MappedFile> file_;
  uint32_t version_ = 0;
  BatchHeader header_;
};

// What a .samples file ends with, by its header (BatchHeaderToJson) and the bytes before it.
std::string SamplesEnd(const std::string& header, uint64_t offset);

// Writes a saved batch (saved_batch.h) atomically, with one sample in memory at a time. Not
// thread-safe. Errors as AtomicFile.
class BatchWriter {
 public:
  static absl::StatusOr<std::unique_ptr<BatchWriter>> Create(const std::string& path);
  ~BatchWriter();

  // InvalidArgument: the lengths of the sample's arrays do not fit each other.
  absl::Status Add(const SavedSample& sample);
  // The file appears under its name only when this returns OK.
  absl::Status Commit(const SavedBatchInfo& info);

 private:
  struct State;
  explicit BatchWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tandem
