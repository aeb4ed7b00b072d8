// From responses to rewards.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace tandem {

struct RewardItem {
  uint64_t sample_id = 0;
  std::string data_source;  // picks the function when reward.function is auto
  std::string prompt;       // rendered
  std::string response;     // decoded, special tokens left out
  std::string ground_truth;
  std::string extra_info_json;
  int64_t response_tokens = 0;
  bool truncated = false;  // the response ran into max_response_length
};

struct RewardScore {
  double score = 0;
  // Terms and further numbers of the function, logged per step as reward/<key>/mean.
  std::map<std::string, double> extras;
  // What the response answers, as the function extracted it; "" if it found none. Validation votes
  // with it (maj@k). None: a function that extracts nothing.
  std::optional<std::string> prediction = std::nullopt;
};

// Thread-safe, does not throw, a pure function of the items.
class RewardFunction {
 public:
  virtual ~RewardFunction() = default;

  // One score per item, in order. Unknown: the reward service is gone after all retries (no worker
  // is lost by that); InvalidArgument: an item nobody can score (unknown data_source), named.
  virtual absl::StatusOr<std::vector<RewardScore>> Score(const std::vector<RewardItem>& items) = 0;

  // InvalidArgument for a row of the data that Score would refuse (unknown data_source), or whose
  // ground truth no response can match. Called for every row before the run starts.
  virtual absl::Status CheckRow(const std::string& /*data_source*/,
                                const std::string& /*ground_truth*/) const {
    return absl::OkStatus();
  }

  // The keys of RewardScore::extras that Score gives every response to a row of `data_source`;
  // none: only its scores tell, as those of a service.
  virtual std::optional<std::set<std::string>> Keys(const std::string& /*data_source*/) const {
    return std::nullopt;
  }
};

// Judges one response. Pure and thread-safe.
using Scorer = std::function<RewardScore(const RewardItem&)>;

}  // namespace tandem
