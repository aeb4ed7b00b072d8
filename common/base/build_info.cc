#include "common/base/build_info.h"

#include <fmt/format.h>

namespace tandem {

std::string BuildText(const BuildInfo& build, std::string_view program) {
  return fmt::format("{} {}, commit {}, sources {}, {}, CUDA {}", program, build.version,
                     build.commit, build.sources, build.flags, build.cuda);
}

std::string BuildId(const BuildInfo& build) {
  if (build.version.empty()) return "";
  return fmt::format("{} {} {}", build.version, build.sources, build.flags);
}

}  // namespace tandem
