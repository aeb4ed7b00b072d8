// Offloaded memory of a CPU worker, as pinned host memory is for a GPU. An unlinked file, mapped
// whole, whose pages stay with the process only while they are worked on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/device/ledger.h"
#include "common/process/local_socket.h"

namespace tandem {

// Ranges that do not overlap may be used by different threads at once.
class FileRegion {
 public:
  // A file of `bytes` zeros in `directory` (which exists), without a name: it is gone when the
  // process is. `ledger` (may be null) outlives the region and counts it under `tag`, location
  // file. ResourceExhausted: the disk is full; names tag, directory and bytes. The space is taken
  // here, so that writing cannot fail later.
  static absl::StatusOr<std::unique_ptr<FileRegion>> Create(const std::string& tag,
                                                            const std::string& directory,
                                                            int64_t bytes,
                                                            Ledger* ledger);
  ~FileRegion();
  FileRegion(const FileRegion&) = delete;
  FileRegion& operator=(const FileRegion&) = delete;

  std::byte* data() const { return data_; }  // the same for life
  int64_t bytes() const { return bytes_; }

  // The process lets go of the pages of [offset, offset + bytes) and the system starts to write
  // those that changed; the values stay and come back at the next touch.
  void Evict(int64_t offset, int64_t bytes);
  // Asks the system to read the range ahead.
  void WillNeed(int64_t offset, int64_t bytes);
  // Bytes of the range that this process holds now, from the system.
  int64_t BytesInUse() const;

 private:
  FileRegion(std::string tag, UniqueFd fd, std::byte* data, int64_t bytes, Ledger* ledger);
  const std::string tag_;
  const UniqueFd fd_;
  std::byte* const data_;
  const int64_t bytes_;
  Ledger* const ledger_;
};

}  // namespace tandem
