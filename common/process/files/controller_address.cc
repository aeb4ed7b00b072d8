#include "common/process/files/controller_address.h"

#include <unistd.h>

#include "common/base/log.h"
#include "common/process/files/private_files.h"

namespace tandem {
namespace {

constexpr size_t kLongestAddress = 512;

std::string AddressFile(const std::string& run_dir) { return run_dir + "/controller.address"; }

}  // namespace

PublishedAddress::PublishedAddress(const std::string& run_dir, const std::string& address) {
  const std::string path = AddressFile(run_dir);
  if (address.rfind("unix:", 0) == 0) {
    unlink(path.c_str());  // of a killed one that listened on a port
    return;
  }
  const absl::Status written = WritePrivateFile(path, address + "\n");
  if (written.ok()) {
    path_ = path;
  } else {
    LogWarn("tandemctl will need --address {}: {}", address, std::string(written.message()));
  }
}

PublishedAddress::~PublishedAddress() {
  if (!path_.empty()) unlink(path_.c_str());
}

std::optional<std::string> ReadPublishedAddress(const std::string& run_dir) {
  absl::StatusOr<std::string> text = ReadPrivateFile(AddressFile(run_dir), kLongestAddress);
  if (!text.ok() || text->find(':') == std::string::npos) return std::nullopt;
  if (text->back() == '\n') text->pop_back();
  return *std::move(text);
}

}  // namespace tandem
