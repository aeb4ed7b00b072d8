// Complete reads and writes of open files: a system call may transfer only a part.
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

// Appends a record at `end`, the file's end, and with Sync::kYes syncs it to the disk. After an
// error truncates the file to `end`, because a reader would take a partial record and the next one
// for a single record.
AppendResult AppendOrCutBack(int fd, std::span<const char> record, int64_t end, Sync sync);

}  // namespace tandem
