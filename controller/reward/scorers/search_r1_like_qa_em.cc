#include "controller/reward/scorers/search_r1_like_qa_em.h"

#include <algorithm>
#include <string_view>

#include <absl/strings/str_join.h>
#include <nlohmann/json.hpp>

#include "common/base/json_nesting.h"
#include "common/base/status.h"
#include "common/text/jinja/value/python_text.h"
#include "common/text/unicode/properties.h"
#include "common/text/unicode/regex.h"
#include "controller/reward/answer_text.h"
#include "controller/reward/scorer_args.h"
#include "controller/reward/scorer_registry.h"

namespace tandem {
namespace {

constexpr std::string_view kAnswerOpen = "<answer>";
constexpr std::string_view kAnswerClose = "</answer>";
constexpr int64_t kMaxTags = 10;

bool IsPunctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}

// Replaces articles by a space, except next to a letter, digit or underscore.
std::string RemoveArticles(const std::string& text) {
  static const Regex articles =
      Regex::Compile("(?<![\\p{L}\\p{N}_])(?:an|a|the)(?![\\p{L}\\p{N}_])").value();
  const auto found = articles.FindAll(text);
  if (!found.ok()) return text;  // out of memory, as the pattern cannot backtrack
  std::string out;
  size_t pos = 0;
  for (const Regex::Match& match : *found) {
    out.append(text, pos, match.begin - pos).append(" ");
    pos = match.end;
  }
  return out.append(text, pos);
}

template <typename Predicate>
bool AnyTarget(const std::vector<std::string>& targets, Predicate fits) {
  return std::any_of(targets.begin(), targets.end(),
                     [&](const std::string& target) { return fits(NormalizeQaAnswer(target)); });
}

std::vector<std::string> TextsOf(const nlohmann::json& value) {
  if (value.is_string()) return {value.get<std::string>()};
  if (!value.is_array()) return {value.dump()};
  std::vector<std::string> texts;
  for (const auto& entry : value) {
    texts.push_back(entry.is_string() ? entry.get<std::string>() : entry.dump());
  }
  return texts;
}

}  // namespace

std::string NormalizeQaAnswer(const std::string& text) {
  std::string out = ToLower(AsUtf8(text));
  std::erase_if(out, IsPunctuation);
  return absl::StrJoin(jinja::Split(RemoveArticles(out), -1), " ");
}

bool MatchesTarget(const std::string& prediction, const std::vector<std::string>& targets) {
  const std::string answer = NormalizeQaAnswer(prediction);
  return AnyTarget(targets, [&](const std::string& target) { return answer == target; });
}

bool ContainsTarget(const std::string& prediction, const std::vector<std::string>& targets) {
  const std::string answer = NormalizeQaAnswer(prediction);
  return AnyTarget(
      targets, [&](const std::string& target) { return answer.find(target) != std::string::npos; });
}

std::optional<std::string> LastTaggedAnswer(const std::string& response) {
  std::optional<std::string_view> last;
  size_t pos = 0;
  while ((pos = response.find(kAnswerOpen, pos)) != std::string::npos) {
    const size_t inside = pos + kAnswerOpen.size(), close = response.find(kAnswerClose, inside);
    if (close == std::string::npos) break;
    last = std::string_view(response).substr(inside, close - inside);
    pos = close + kAnswerClose.size();
  }
  if (!last) return std::nullopt;
  return StripSpace(AsUtf8(*last));
}

std::vector<std::string> QaTargets(const std::string& truth) {
  if (!CheckJsonNesting(truth).ok()) return {truth};
  const auto json = nlohmann::json::parse(truth, nullptr, /*allow_exceptions=*/false);
  if (json.is_array()) return TextsOf(json);
  if (!json.is_object()) return {truth};
  return json.contains("target") ? TextsOf(json["target"]) : std::vector<std::string>();
}

double ScoreSearchQa(const std::string& response,
                     const std::vector<std::string>& targets,
                     const QaOptions& options) {
  const std::optional<std::string> answer = LastTaggedAnswer(response);
  if (!answer) return 0;
  if (options.part) return ContainsTarget(*answer, targets) ? options.score : options.format_score;
  if (!MatchesTarget(*answer, targets)) return options.format_score;
  const bool too_many = jinja::Count(response, kAnswerOpen) > kMaxTags ||
                        jinja::Count(response, kAnswerClose) > kMaxTags;
  return too_many ? options.score / 4 : options.score;
}

namespace {

bool HasQaTarget(const std::string& truth) { return !QaTargets(truth).empty(); }

absl::StatusOr<Scorer> MakeSearchR1(const nlohmann::json& args) {
  QaOptions options;
  TANDEM_ASSIGN_OR_RETURN(options.format_score, NumberArg(args, "format_score", 0.0));
  TANDEM_ASSIGN_OR_RETURN(options.part, FlagArg(args, "subem", false));
  return Scorer([options](const RewardItem& item) {
    const std::optional<std::string> answer = LastTaggedAnswer(item.response);
    return RewardScore{.score = ScoreSearchQa(item.response, QaTargets(item.ground_truth), options),
                       .extras = {},
                       .prediction = answer ? NormalizeQaAnswer(*answer) : ""};
  });
}

constexpr std::string_view kSearchR1Args[] = {"format_score", "subem"};
constexpr std::string_view kSearchR1Sources[] = {
    "searchR1_nq",       "searchR1_triviaqa",        "searchR1_popqa",
    "searchR1_hotpotqa", "searchR1_2wikimultihopqa", "searchR1_musique",
    "searchR1_bamboogle"};

}  // namespace

extern const RewardScorer kSearchR1LikeQaEmScorer = {.args = kSearchR1Args,
                                                     .data_sources = kSearchR1Sources,
                                                     .accepts_truth = HasQaTarget,
                                                     .truth = "a text or {\"target\": [...]}",
                                                     .make = MakeSearchR1};

}  // namespace tandem
