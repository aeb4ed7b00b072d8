// The interface of reward functions.
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
  std::string data_source;  // selects the function if reward.function is auto
  std::string prompt;       // rendered
  std::string response;     // decoded, without special tokens
  std::string ground_truth;
  std::string extra_info_json;
  int64_t response_tokens = 0;
  bool truncated = false;  // the response was stopped by max_response_length
};

struct RewardScore {
  double score = 0;
  // Terms and further values of the function, logged per step as reward/<key>/mean.
  std::map<std::string, double> extras;
  // The answer that the function parsed from the response, "" if it found none; validation uses it
  // for majority votes (maj@k). nullopt: the function does not parse answers.
  std::optional<std::string> prediction = std::nullopt;
};

// Thread-safe; does not throw; the scores are a pure function of the items.
class RewardFunction {
 public:
  virtual ~RewardFunction() = default;

  // Returns one score per item, in order. Unknown: the reward service failed after all retries
  // (this does not count as a lost worker). InvalidArgument: an item cannot be scored (unknown
  // data_source); the message names it. Cancelled: see EndWhen.
  virtual absl::StatusOr<std::vector<RewardScore>> Score(const std::vector<RewardItem>& items) = 0;

  // InvalidArgument: Score would refuse the row (unknown data_source), or no response can match its
  // ground truth. Called for every row before the run starts.
  virtual absl::Status CheckRow(const std::string& /*data_source*/,
                                const std::string& /*ground_truth*/) const {
    return absl::OkStatus();
  }

  // `interrupted` is polled where Score waits to try again; once it returns true, Score ends with
  // Cancelled. Called before the first Score.
  virtual void EndWhen(std::function<bool()> /*interrupted*/) {}

  // The keys of RewardScore::extras of every response to a row of `data_source`; nullopt: they are
  // only known from scores, as with a remote service.
  virtual std::optional<std::set<std::string>> Keys(const std::string& /*data_source*/) const {
    return std::nullopt;
  }
};

// Scores one response. Pure and thread-safe.
using Scorer = std::function<RewardScore(const RewardItem&)>;

}  // namespace tandem
