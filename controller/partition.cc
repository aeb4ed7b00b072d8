#include "controller/partition.h"

#include <algorithm>
#include <cstddef>

namespace tandem {
namespace {

double Workload(int64_t tokens) {
  const auto length = static_cast<double>(tokens);
  return 24576.0 * length + length * length;
}

bool ById(const SampleLength& a, const SampleLength& b) { return a.sample_id < b.sample_id; }

bool LongestFirst(const SampleLength& a, const SampleLength& b) {
  return a.tokens != b.tokens ? a.tokens > b.tokens : a.sample_id < b.sample_id;
}

}  // namespace

std::vector<std::vector<uint64_t>> PartitionSamples(std::vector<SampleLength> samples,
                                                    int ranks,
                                                    Balance balance) {
  std::vector<std::vector<uint64_t>> parts(static_cast<size_t>(ranks));
  if (balance == Balance::kInOrder) {
    std::sort(samples.begin(), samples.end(), ById);
    for (size_t i = 0; i < samples.size(); ++i) {
      parts[i * parts.size() / samples.size()].push_back(samples[i].sample_id);
    }
    return parts;
  }
  std::sort(samples.begin(), samples.end(), LongestFirst);
  std::vector<double> load(parts.size(), 0.0);
  for (const SampleLength& sample : samples) {
    const size_t rank =
        static_cast<size_t>(std::min_element(load.begin(), load.end()) - load.begin());
    load[rank] += Workload(sample.tokens);
    parts[rank].push_back(sample.sample_id);
  }
  for (auto& part : parts) std::sort(part.begin(), part.end());
  return parts;
}

}  // namespace tandem
