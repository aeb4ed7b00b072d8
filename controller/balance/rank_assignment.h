// What a sequence costs to train, so that ranks and micro-batches can be given equal work.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

// Relative cost of a sequence of `tokens`: 24576 L + L^2, the linear layers and the attention of a
// model of hidden size 4096 (verl utils/seqlen_balancing.py, calculate_workload).
constexpr int64_t Workload(int64_t tokens) { return 24576 * tokens + tokens * tokens; }

// Which rank trains which sample.
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

// Parts of groups → ranks.

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

// How unequal the tokens of ranks are, and how unequal they would be without balancing.

// In tokens; verl logs them as global_seqlen/* (utils/seqlen_balancing.py, log_seqlen_unbalance).
struct SeqlenImbalance {
  // Over runs of floor(sequences / parts) neighbours in the order given: what ranks would have got.
  // As in verl a shorter last run counts where the sequences do not divide evenly, and then `min`
  // may be that run's.
  int64_t min = 0;
  int64_t max = 0;
  int64_t balanced_min = 0;  // over the parts
  int64_t balanced_max = 0;
  double mean = 0;  // of a part
};

// `lengths` [sequences]; `parts`: lists of indices into it, at least one. All 0 without sequences.
SeqlenImbalance MeasureImbalance(const std::vector<int64_t>& lengths,
                                 const std::vector<std::vector<int64_t>>& parts);

}  // namespace tandem
