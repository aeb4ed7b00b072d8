#include "controller/reward/data_sources.h"

#include <map>

#include <fmt/ranges.h>

#include "common/base/status.h"
#include "controller/reward/scorer_registry.h"

namespace tandem {
namespace {

const std::map<std::string, std::string>& Functions() {
  static const std::map<std::string, std::string> by_source = {
      {"tandem/addition", "last_integer"},
      {"openai/gsm8k", "gsm8k_strict"},
      {"lighteval/MATH", "math_reward"},
      {"DigitalLearningGmbH/MATH-lighteval", "math_reward"},
      {"HuggingFaceH4/MATH-500", "math_reward"},
      {"math_dapo", "math_dapo"},
      {"math", "math_dapo"},
      {"math_dapo_reasoning", "math_dapo"},
      {"searchR1_nq", "search_r1_like_qa_em"},
      {"searchR1_triviaqa", "search_r1_like_qa_em"},
      {"searchR1_popqa", "search_r1_like_qa_em"},
      {"searchR1_hotpotqa", "search_r1_like_qa_em"},
      {"searchR1_2wikimultihopqa", "search_r1_like_qa_em"},
      {"searchR1_musique", "search_r1_like_qa_em"},
      {"searchR1_bamboogle", "search_r1_like_qa_em"}};
  return by_source;
}

// Sources that verl scores with something that is not here, and what that is.
std::string Missing(const std::string& source) {
  static constexpr char kAlgebra[] =
      " (verl compares formulas with a computer algebra system there; prime_math compares their "
      "normal forms only)";
  static constexpr char kCode[] = " (verl runs code there)";
  static const std::map<std::string, const char*> known = {
      {"numina_aops_forum", kAlgebra}, {"numina_synthetic_math", kAlgebra},
      {"numina_amc_aime", kAlgebra},   {"numina_synthetic_amc", kAlgebra},
      {"numina_cn_k12", kAlgebra},     {"numina_olympiads", kAlgebra},
      {"codecontests", kCode},         {"apps", kCode},
      {"codeforces", kCode},           {"taco", kCode}};
  const auto found = known.find(source);
  return found == known.end() ? "" : found->second;
}

}  // namespace

std::set<std::string> KnownDataSources() {
  std::set<std::string> sources;
  for (const auto& [source, function] : Functions()) sources.insert(source);
  return sources;
}

absl::StatusOr<std::string> FunctionOfDataSource(const std::string& data_source) {
  const auto found = Functions().find(data_source);
  if (found != Functions().end()) return found->second;
  if (data_source.starts_with("aime")) return "math_dapo";
  return InvalidArgument(
      "no built-in reward for data_source \"{}\"{}: set reward.function to one of {}, or to remote",
      data_source, Missing(data_source), fmt::join(FunctionNames(), ", "));
}

}  // namespace tandem
