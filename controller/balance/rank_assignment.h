// Assigns samples to trainer ranks so that all ranks get about equal work.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

// Relative cost of a sequence of `tokens`: 24576 L + L^2, the linear layers and the attention of a
// model of hidden size 4096 (verl utils/seqlen_balancing.py, calculate_workload).
constexpr int64_t Workload(int64_t tokens) { return 24576 * tokens + tokens * tokens; }

struct SampleLength {
  uint64_t sample_id = 0;
  int64_t tokens = 0;  // prompt and response
  int64_t group = 0;   // samples of a group have the same prompt
  int64_t prompt_tokens = 0;
};

enum class Balance { kByLength, kInOrder };

// Returns one list of sample ids per rank, each in order of id; a list may be empty. The result
// depends on the set of samples alone. kByLength balances Workload() by largest differencing
// (AssignChunks). A group stays on one rank, which then computes its prompt once, unless a rank
// would get no samples or more than 1.05 times its even share. In that case groups are halved until
// the limit holds or halving no longer helps. kInOrder gives each rank an equal number of
// consecutive ids.
std::vector<std::vector<uint64_t>> AssignSamplesToRanks(std::vector<SampleLength> samples,
                                                        int ranks,
                                                        Balance balance);

// Samples of one group that are assigned to one rank together. Costs are in units of Workload().
struct SampleChunk {
  std::vector<SampleLength> samples;  // in order of id; never empty
  int64_t prompt = 0;                 // cost of the prompt, paid once per rank and group
  int64_t own = 0;                    // cost of the responses

  uint64_t first_id() const { return samples.front().sample_id; }
  int64_t group() const { return samples.front().group; }
  int64_t total() const { return prompt + own; }
};

SampleChunk MakeChunk(std::vector<SampleLength> samples);
// Orders chunks by falling total cost, and chunks of equal cost by their first sample id.
bool HeavierChunk(const SampleChunk& a, const SampleChunk& b);

// The chunks assigned to each rank, and the cost that they add up to.
struct RankAssignment {
  std::vector<std::vector<const SampleChunk*>> chunks;
  std::vector<int64_t> load;
  int64_t highest() const;
};

// Assigns by largest differencing. If a rank's load then exceeds `limit`, also tries "longest
// processing time first", which unlike differencing knows that chunks of one group share a prompt.
// Returns the assignment whose most loaded rank has less work, the one by differencing on a tie.
// The result depends on `chunks` alone and points into it.
RankAssignment AssignChunks(const std::vector<SampleChunk>& chunks, int ranks, double limit);

// The imbalance of token counts between ranks, with and without balancing. verl logs it as
// global_seqlen/* (utils/seqlen_balancing.py, log_seqlen_unbalance).
struct SeqlenImbalance {
  // Without balancing: over runs of floor(sequences / parts) consecutive sequences in the order
  // given. As in verl, a shorter last run is included where the sequences do not divide evenly, and
  // `min` may be its sum.
  int64_t min = 0;
  int64_t max = 0;
  int64_t balanced_min = 0;  // with balancing: over `parts`
  int64_t balanced_max = 0;
  double mean = 0;  // tokens per part
};

// `lengths` [sequences] are token counts; `parts` are lists of indices into it, at least one.
// Without sequences, all results are 0.
SeqlenImbalance MeasureImbalance(const std::vector<int64_t>& lengths,
                                 const std::vector<std::vector<int64_t>>& parts);

}  // namespace tandem
