// A file that whole records are appended to: metrics.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/status.h>

namespace tandem {

// A record is in the file completely or not at all. One that a full or failing disk refuses
// (IsDiskRefused) is held back in memory and written later, in its place. One that cannot be
// written for another reason, such as a limit on the size of files, is dropped, and the next one is
// tried again: the log says when the first one is dropped, and how many were once a record is
// written again or the file ends. Not thread-safe.
class RecordFile {
 public:
  // Opens or creates `path`, whose folder must exist; a failure counts when a record is written.
  // `contents` names the records in warnings, as in "metrics".
  RecordFile(std::string path, std::string contents);
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  // Passes what was held back and the record to the operating system, or holds it back, too. False:
  // it was dropped.
  bool Append(const std::string& record);
  // Writes what was held back. An error is marked as a disk's refusal: it still is held back.
  absl::Status Flush();
  // The next write opens the file that has the path then.
  void Close();

 private:
  // The errno of what failed, 0: the records are written.
  int Write(const std::string& records);
  void TellDropped();

  const std::string path_;
  const std::string contents_;
  int fd_ = -1;
  std::string held_back_;  // whole records
  int64_t dropped_ = 0;    // since a record was written last
};

}  // namespace tandem
