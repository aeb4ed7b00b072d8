#include "controller/partial_rollout/buffer/buffered_sample.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace tandem {

int64_t BufferedSample::tokens() const {
  return std::accumulate(versions.begin(), versions.end(), int64_t{0},
                         [](int64_t sum, const VersionRun& run) { return sum + run.tokens; });
}

int64_t BufferedSample::versions_before(int64_t version) const {
  return std::count_if(versions.begin(), versions.end(),
                       [&](const VersionRun& run) { return run.version < version; });
}

bool BufferedGroup::complete() const {
  return std::all_of(samples.begin(), samples.end(),
                     [](const BufferedSample& sample) { return sample.finished(); });
}

int64_t BufferedGroup::oldest_version() const {
  int64_t oldest = std::numeric_limits<int64_t>::max();
  for (const BufferedSample& sample : samples) {
    if (!sample.versions.empty()) oldest = std::min(oldest, sample.versions.front().version);
  }
  return oldest;
}

std::vector<VersionRun> RunsOf(const std::vector<int64_t>& versions) {
  std::vector<VersionRun> runs;
  for (const int64_t version : versions) {
    if (runs.empty() || runs.back().version != version) runs.push_back({version, 0});
    ++runs.back().tokens;
  }
  return runs;
}

std::vector<int64_t> PerToken(const std::vector<VersionRun>& runs) {
  std::vector<int64_t> versions;
  for (const VersionRun& run : runs) {
    versions.insert(versions.end(), static_cast<size_t>(run.tokens), run.version);
  }
  return versions;
}

}  // namespace tandem
