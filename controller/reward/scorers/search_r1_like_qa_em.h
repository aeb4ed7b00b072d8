// Scores answers to questions by exact match, as in verl's search_r1_like_qa_em (Jin et al. 2025,
// Search-R1; Rajpurkar et al. 2016, SQuAD, for the normal form; golden kind search_r1_like_qa_em).
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tandem {

// The normal form: lower case, without ASCII punctuation, then without the words a, an and the,
// with white space as single spaces.
std::string NormalizeQaAnswer(const std::string& text);

// Whether the prediction equals one of the targets in the normal form; ContainsTarget: whether it
// contains one of them.
bool MatchesTarget(const std::string& prediction, const std::vector<std::string>& targets);
bool ContainsTarget(const std::string& prediction, const std::vector<std::string>& targets);

// The content of the last <answer>...</answer>, without white space at both ends. Scans once.
std::optional<std::string> LastTaggedAnswer(const std::string& response);

// The targets of a ground truth: {"target": text or list of texts} or a list of texts as JSON, else
// the text itself. Empty: the JSON object has no target.
std::vector<std::string> QaTargets(const std::string& truth);

struct QaOptions {
  bool part = false;        // verl's subem: the answer may contain more than the target
  double format_score = 0;  // of a wrong answer in tags
  double score = 1;         // of a right one
};

// 0 without an answer in tags. With more than ten opening or closing tags, a right answer gets a
// quarter of `score` (not with `part`).
double ScoreSearchQa(const std::string& response,
                     const std::vector<std::string>& targets,
                     const QaOptions& options = {});

}  // namespace tandem
