#include "controller/assembly/offload_space.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "common/base/status_macros.h"

namespace tandem {

int64_t OffloadedBytes(const MemoryPlan& plan) {
  int64_t most = 0;
  for (const PlannedPhase& phase : plan.phases) {
    int64_t bytes = 0;
    for (const MemoryLine& line : phase.lines) {
      bytes += line.location == Location::kFile ? line.bytes : 0;
    }
    most = std::max(most, bytes);
  }
  return most;
}

absl::Status CheckOffloadSpace(const MemoryPlan& plan,
                               int64_t pairs,
                               const std::string& directory,
                               int64_t free_bytes) {
  const int64_t bytes = pairs * OffloadedBytes(plan);
  if (bytes <= free_bytes) return absl::OkStatus();
  return MakeStatus(absl::StatusCode::kResourceExhausted,
                    "offloaded memory of {} trainers takes {} bytes ({} MiB) of files in {}, where "
                    "{} bytes ({} MiB) are free: make room there, choose another cluster.run_dir, "
                    "or offload less",
                    pairs, bytes, bytes >> 20, directory, free_bytes, free_bytes >> 20);
}

int64_t FreeDiskBytes(const std::string& directory) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(directory, error);
  constexpr auto kUnknown = std::numeric_limits<int64_t>::max();
  if (error || space.available > static_cast<std::uintmax_t>(kUnknown)) return kUnknown;
  return static_cast<int64_t>(space.available);
}

}  // namespace tandem
