// Which rank trains which sample.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

struct SampleLength {
  uint64_t sample_id = 0;
  int64_t tokens = 0;  // prompt and response
};

enum class Balance { kByLength, kInOrder };

// Deals samples to `ranks` lists, each in order of sample id; a rank may get none. A pure function
// of the set of samples. kByLength: longest processing time first with verl's workload
// 24576 L + L^2 (verl utils/seqlen_balancing.py), ties by sample id; kInOrder: equal runs of ids.
std::vector<std::vector<uint64_t>> PartitionSamples(std::vector<SampleLength> samples,
                                                    int ranks,
                                                    Balance balance);

}  // namespace tandem
