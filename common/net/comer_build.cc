#include "common/net/comer_build.h"

#include <fmt/format.h>

#include "common/base/status.h"
#include "common/net/protocol.h"

namespace tandem {

absl::Status CheckProtocol(const std::string& who, int protocol) {
  if (protocol == kProtocolVersion) return absl::OkStatus();
  return InvalidArgument("{} speaks protocol {}, this controller {}: use binaries of one build",
                         who, protocol, kProtocolVersion);
}

std::string OtherBuildText(const std::string& who, const BuildName& its, const BuildName& own) {
  if (its.id == own.id) return "";
  return fmt::format("{} is of another build ({}) than this controller ({})", who, its.text,
                     own.text);
}

absl::Status CheckSameBuild(const std::string& who, const BuildName& its, const BuildName& own) {
  const std::string other = OtherBuildText(who, its, own);
  if (other.empty()) return absl::OkStatus();
  return FailedPrecondition(
      "{}: they may not understand each other's messages, and results may differ; start all "
      "programs from one build (--version shows it), or set cluster.allow_other_build=true",
      other);
}

}  // namespace tandem
