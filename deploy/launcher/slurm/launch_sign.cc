#include "deploy/launcher/slurm/launch_sign.h"

#include <cstdint>
#include <fstream>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "common/base/log.h"
#include "common/process/files/private_files.h"

namespace tandem {
namespace {

constexpr absl::Duration kBetweenSigns = absl::Seconds(5);
constexpr absl::Duration kLook = absl::Milliseconds(200);

std::string TextOf(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

LaunchSign::LaunchSign(std::string path)
    : path_(std::move(path)), thread_("launch-sign", [this] {
        for (int64_t sign = 1; !over_; ++sign) {
          // A disk that refuses it for a while costs the signs of that time.
          const absl::Status written = WritePrivateFile(path_, fmt::format("{}\n", sign));
          if (!written.ok()) LogWarn("{}: {}", path_, std::string(written.message()));
          const Instant next = RealClock().Now() + kBetweenSigns;
          while (!over_ && RealClock().Now() < next) RealClock().Sleep(kLook);
        }
      }) {}

LaunchSign::~LaunchSign() {
  over_ = true;
  thread_.Join();
}

bool LaunchIsInCharge(const std::string& path, Clock& clock) {
  const std::string before = TextOf(path);
  const Instant end = clock.Now() + kLaunchSignPatience;
  while (TextOf(path) == before) {
    if (before.empty()) return true;
    if (clock.Now() >= end) return false;
    clock.Sleep(absl::Seconds(1));
  }
  return true;
}

}  // namespace tandem
