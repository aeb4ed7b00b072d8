// Parts of groups → ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "controller/balance/partition.h"

namespace tandem {

// Samples of one group that stay together. In units of Workload().
struct Part {
  std::vector<SampleLength> samples;  // in order of id, at least one
  int64_t prompt = 0;                 // paid once on a rank that has the group
  int64_t own = 0;                    // of the rest

  uint64_t first_id() const { return samples.front().sample_id; }
  int64_t group() const { return samples.front().group; }
  int64_t total() const { return prompt + own; }
};

Part MakePart(std::vector<SampleLength> samples);
// By total, ties by first id.
bool LargerPart(const Part& a, const Part& b);

// The parts of each rank, and its load.
struct Deal {
  std::vector<std::vector<const Part*>> parts;
  std::vector<int64_t> load;
  int64_t highest() const;
};

// By largest differencing. Where that leaves a rank with over `limit`, longest processing time
// first has a try, which sees what differencing does not, that parts of one group share a prompt;
// the deal with the lower highest load is taken, differencing's on a tie. A pure function of the
// list of parts, which the result points into.
Deal DealParts(const std::vector<Part>& parts, int ranks, double limit);

}  // namespace tandem
