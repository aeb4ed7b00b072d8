// Offloaded memory of a CPU worker; a GPU worker uses pinned host memory instead. It is an unlinked
// file, mapped as a whole, whose pages stay in the process only while they are used.
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

// Different threads may use ranges that do not overlap at the same time.
class FileRegion {
 public:
  // Makes a file of `bytes` zeros in `directory`, which must exist. It has no name, so it
  // disappears with the process. `ledger` (may be null) outlives the region and counts it under
  // `tag`, location file. ResourceExhausted: the disk is full; names tag, directory and bytes. The
  // space is allocated now, so that writing cannot fail later.
  static absl::StatusOr<std::unique_ptr<FileRegion>> Create(const std::string& tag,
                                                            const std::string& directory,
                                                            int64_t bytes,
                                                            Ledger* ledger);
  ~FileRegion();
  FileRegion(const FileRegion&) = delete;
  FileRegion& operator=(const FileRegion&) = delete;

  std::byte* data() const { return data_; }  // the same for life
  int64_t bytes() const { return bytes_; }

  // Drops the pages of [offset, offset + bytes) from the process and starts to write changed ones
  // to the file; the values return at the next touch.
  void Evict(int64_t offset, int64_t bytes);
  // Asks the system to read the range ahead.
  void WillNeed(int64_t offset, int64_t bytes);
  // Bytes of the range that are in this process's memory now, as the system reports them.
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
