#include "controller/generation/round_facts.h"

#include <string>

namespace tandem {

void CountRound(bool is_own_round, const RoundCounts& round, StepFacts& facts) {
  facts.generated_tokens += round.generated_tokens;
  const auto add = [&facts](const char* name, int64_t value) {
    facts.trainer[std::string(kPartialPrefix) + name] += static_cast<double>(value);
  };
  add("rounds", is_own_round ? 1 : 0);
  add("issued_samples", round.samples);
  add("final_samples", round.final_samples);
  add("cut_samples", round.interrupted_samples);
  add("prefilled_again_tokens", round.prefilled_again_tokens);
}

void CountBackground(int64_t rounds, int64_t tokens, StepFacts& facts) {
  facts.trainer[std::string(kPartialPrefix) + "overlap_rounds"] = static_cast<double>(rounds);
  facts.trainer[std::string(kPartialPrefix) + "overlap_tokens"] = static_cast<double>(tokens);
}

void CountPrefilled(const std::optional<int64_t>& tokens, bool* known, StepFacts& facts) {
  *known = *known && tokens.has_value();
  const std::string name = std::string(kPartialPrefix) + "prefilled_tokens";
  if (*known) {
    facts.trainer[name] += static_cast<double>(*tokens);
  } else {
    facts.trainer.erase(name);
  }
}

}  // namespace tandem
