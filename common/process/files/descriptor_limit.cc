#include "common/process/files/descriptor_limit.h"

#include <algorithm>
#include <limits>

#include <sys/resource.h>

#include "common/base/status.h"

namespace tandem {
namespace {

// Logs, stores, sockets and pipes of gRPC, users' connections: about 20 were seen.
constexpr int64_t kBesideWorkers = 128;

}  // namespace

int64_t RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  const rlim_t now = setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_max : before;
  constexpr auto kMost = static_cast<rlim_t>(std::numeric_limits<int64_t>::max());
  return static_cast<int64_t>(std::min(now, kMost));
}

absl::Status CheckDescriptors(int64_t workers, int64_t limit) {
  const int64_t needed = 2 * workers + kBesideWorkers;
  if (needed <= limit) return absl::OkStatus();
  return FailedPrecondition(
      "{} workers need {} open descriptors in the controller, and this process may have {}: raise "
      "the hard limit (ulimit -Hn, LimitNOFILE= of a systemd unit, --ulimit nofile of a container) "
      "or lower cluster.trainers and cluster.rollouts",
      workers, needed, limit);
}

}  // namespace tandem
