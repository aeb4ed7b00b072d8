// Scores GSM8K answers, extracted as in verl's reward_score/gsm8k.py (golden family "rewards").
#pragma once

#include <optional>
#include <string>

namespace tandem {

enum class Gsm8kMethod {
  kStrict,    // the last "#### number"
  kFlexible,  // the last run of digits, points and commas
};

// Searches the last 300 characters (code points) only. Commas and dollar signs are removed from a
// strict answer. nullopt: no answer of the requested form.
std::optional<std::string> ExtractGsm8kAnswer(const std::string& response, Gsm8kMethod method);

// `score` if the extracted answer equals `truth` as text, `format_score` for another answer, 0
// without an answer.
double ScoreGsm8k(const std::string& response,
                  const std::string& truth,
                  Gsm8kMethod method,
                  double format_score = 0.0,
                  double score = 1.0);

}  // namespace tandem
