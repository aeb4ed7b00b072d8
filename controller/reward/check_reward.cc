#include "controller/reward/check_reward.h"

#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "common/base/status_macros.h"
#include "controller/reward/overlong.h"
#include "controller/reward/scorer_registry.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

// reward.function=auto picks by row: the arguments must suit one of the functions at least.
absl::Status CheckArgsOfAuto(const std::string& args) {
  if (args.empty()) return absl::OkStatus();
  absl::Status first;
  for (const std::string& name : FunctionNames()) {
    const absl::Status made = MakeScorer(name, args).status();
    if (made.ok()) return made;
    if (first.ok()) first = made;
  }
  return first;
}

absl::Status CheckFunction(const v1::Reward& config) {
  if (config.function() == "auto") return CheckArgsOfAuto(config.args());
  if (config.function() != "remote") return MakeScorer(config.function(), config.args()).status();
  if (!config.service_address().empty()) return absl::OkStatus();
  return InvalidArgument(
      "reward.function is remote but reward.service_address is empty: name the RewardService, e.g. "
      "127.0.0.1:7000");
}

}  // namespace

absl::Status CheckReward(const v1::Reward& config, const ConfigOrigins& origins) {
  std::vector<std::string> problems;
  const auto note = [&](const std::string& key, const absl::Status& status) {
    if (status.ok()) return;
    const auto origin = origins.find(key.substr(0, key.find('[')));
    problems.push_back(fmt::format("{}{}: {}", key,
                                   origin == origins.end() ? "" : " at " + origin->second,
                                   std::string(status.message())));
  };
  const bool named = config.function() == "remote";
  note(named ? "reward.service_address" : "reward.args", CheckFunction(config));
  for (int i = 0; i < config.terms_size(); ++i) {
    const v1::RewardTerm& term = config.terms(i);
    const std::string key = fmt::format("reward.terms[{}]", i);
    note(key, MakeScorer(term.name(), term.args()).status());
    for (int other = 0; other < i; ++other) {
      if (config.terms(other).name() != term.name()) continue;
      note(key, InvalidArgument("there is a term {} already, and values are told apart by name; "
                                "make one of the two, as with one pattern for both",
                                term.name()));
      break;
    }
  }
  if (config.overlong_buffer().enable()) {
    const v1::OverlongBuffer& buffer = config.overlong_buffer();
    note("reward.overlong_buffer.len",
         OverlongPenalty::Create(config.max_resp_len(), buffer.len(), buffer.penalty_factor())
             .status());
  }
  if (problems.empty()) return absl::OkStatus();
  return InvalidArgument("{}", fmt::join(problems, "\n"));
}

}  // namespace tandem
