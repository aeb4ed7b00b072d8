// What a file contains, in 128 bits: tells whether two files are equal without having both.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace tandem {

struct FileDigest {
  int64_t bytes = 0;
  std::string hex;  // 32 digits
  friend bool operator==(const FileDigest&, const FileDigest&) = default;
};

// Reads each file wholly, in pieces on `threads` threads. The digest is the 128-bit XXH3 of the
// pieces' 128-bit XXH3, which does not depend on `threads`: it finds accidents, not forgeries.
// Errors by IoErrorCode name the path; DataLoss: a file became shorter meanwhile.
absl::StatusOr<std::vector<FileDigest>> DigestFiles(const std::vector<std::string>& paths,
                                                    int threads);

// The same digest, of a text in memory.
FileDigest DigestText(const std::string& text);

}  // namespace tandem
