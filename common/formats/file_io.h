// Reads and writes of open files that go on until they are whole: the system may do a part of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tandem {

// How far a read or write came.
struct IoResult {
  size_t bytes = 0;
  int error = 0;  // the errno that ended it, 0: none
};

// A device that takes no more bytes, and gives no reason, is full: ENOSPC.
IoResult WriteAll(int fd, std::span<const char> bytes, int64_t offset);

// Fewer bytes without an error: the file ends there.
IoResult ReadAll(int fd, std::span<char> bytes, int64_t offset);

struct AppendResult {
  int error = 0;      // the errno of what failed, 0: the record is in the file
  bool torn = false;  // after an error: a part of the record may be in the file
};

enum class Sync { kNo, kYes };

// Writes a record to the end of a file, `end`, and with Sync::kYes to the disk. After an error the
// file is cut back to `end`, as a reader would take the part of this record and the next one for a
// single record.
AppendResult AppendOrCutBack(int fd, std::span<const char> record, int64_t end, Sync sync);

}  // namespace tandem
