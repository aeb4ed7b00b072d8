// One row of the data after tokenisation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

struct Prompt {
  uint64_t data_row = 0;  // row in the (filtered) data set
  uint64_t epoch = 0;
  std::vector<int32_t> tokens;
  std::string text;         // rendered prompt, for people
  std::string data_source;  // selects the reward
  std::string ground_truth;
  std::string extra_info_json;
};

}  // namespace tandem
