// Which rank trains which sample.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

struct SampleLength {
  uint64_t sample_id = 0;
  int64_t tokens = 0;  // prompt and response
  int64_t group = 0;   // samples of a group have the same prompt
  int64_t prompt_tokens = 0;
};

enum class Balance { kByLength, kInOrder };

// Deals samples to `ranks` lists, each in order of sample id; a rank may get none. A pure function
// of the set of samples. kByLength: by largest differencing of Workload() (DealParts). A group
// stays on one rank, which computes its prompt once, unless ranks would go without samples or one
// would have over 1.05 times its even share; then groups are halved until that is no longer so or
// no longer helps. kInOrder: equal runs of ids.
std::vector<std::vector<uint64_t>> PartitionSamples(std::vector<SampleLength> samples,
                                                    int ranks,
                                                    Balance balance);

}  // namespace tandem
