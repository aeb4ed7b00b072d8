// How unequal the tokens of ranks are, and how unequal they would be without balancing.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

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
