// A file that whole records are appended to and that a run can do without: metrics.
#pragma once

#include <cstdint>
#include <string>

namespace tandem {

// A record is in the file completely or not at all. One that cannot be written, because the disk is
// full for example, is dropped, and the next one is tried again. The log says when the first one is
// dropped, and how many were once a record is written again or the file ends. Not thread-safe.
class RecordFile {
 public:
  // Opens or creates `path`, whose folder must exist; a failure counts when a record is written.
  // `contents` names the records in warnings, as in "metrics".
  RecordFile(std::string path, std::string contents);
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  // Passes the record to the operating system. False: it was dropped.
  bool Append(const std::string& record);
  // The next Append opens the file that has the path then.
  void Close();

 private:
  // The errno of what failed, 0: the record is written.
  int Write(const std::string& record);
  void TellDropped();

  const std::string path_;
  const std::string contents_;
  int fd_ = -1;
  int64_t dropped_ = 0;  // since a record was written last
};

}  // namespace tandem
