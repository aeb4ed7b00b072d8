// Where the controller of a run directory listens, for programs of the same user that know only the
// directory.
#pragma once

#include <optional>
#include <string>

namespace tandem {

// Writes `address`, unless it is a Unix socket's, to RUN_DIR/controller.address and removes the
// file when destroyed. A failure is logged: tandemctl then needs --address.
class PublishedAddress {
 public:
  PublishedAddress(const std::string& run_dir, const std::string& address);
  ~PublishedAddress();
  PublishedAddress(const PublishedAddress&) = delete;
  PublishedAddress& operator=(const PublishedAddress&) = delete;

 private:
  std::string path_;  // empty: nothing was written
};

// What the newest controller that listened on a port wrote, or nothing. One that was killed leaves
// its file.
std::optional<std::string> ReadPublishedAddress(const std::string& run_dir);

}  // namespace tandem
