#include "common/net/protocol.h"

#include <fstream>
#include <random>

#include "common/base/status_macros.h"

namespace tandem {

absl::StatusOr<std::string> ReadBootId() {
  constexpr char kPath[] = "/proc/sys/kernel/random/boot_id";
  std::ifstream file(kPath);
  std::string id;
  if (!(file >> id)) return Internal("cannot read {}", kPath);
  return id;
}

std::string MakeBootNonce() {
  std::random_device device;
  std::string nonce;
  for (int word = 0; word < 4; ++word) nonce += fmt::format("{:08x}", device());
  return nonce;
}

}  // namespace tandem
