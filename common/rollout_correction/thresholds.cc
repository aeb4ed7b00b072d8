#include "common/rollout_correction/thresholds.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string_view>
#include <utility>

#include <absl/strings/numbers.h>

#include "common/base/status.h"

namespace tandem {
namespace {

constexpr const char* kGrammar =
    "a bound is a number above 0 such as 2.0, \"lo_hi\" such as 0.5_2.0 gives a lower one too, and "
    "several are joined with commas";

constexpr const char* kNames =
    "token_k1, token_k2, token_k3, seq_sum_k1, seq_sum_k2, seq_sum_k3, seq_mean_k1, seq_mean_k2, "
    "seq_mean_k3, seq_max_k2 or seq_max_k3";

std::string_view Trim(std::string_view text) {
  constexpr const char* kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

// Parts between commas, without the empty ones: verl reads names and thresholds so.
std::vector<std::string> Parts(std::string_view text) {
  std::vector<std::string> parts;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view part = Trim(text.substr(0, comma));
    if (!part.empty()) parts.emplace_back(part);
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

// The text without underscores between two digits, which Python takes for separators: verl's bounds
// are Python's, so that "1_2_3", cut at its first underscore, has the bounds 1 and 23.
std::string WithoutSeparators(std::string_view text) {
  const auto digit = [text](size_t i) {
    return i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0;
  };
  std::string number;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_' || i == 0 || !digit(i - 1) || !digit(i + 1)) number.push_back(text[i]);
  }
  return number;
}

// A bound that is compared with floats. It may be infinite, but must not become so.
absl::Status CheckFitsFloat(double value) {
  if (std::isfinite(static_cast<float>(value)) || std::isinf(value)) return absl::OkStatus();
  return InvalidArgument("{} is beyond the range of a float", value);
}

// A bound: above 0, maybe infinite.
absl::StatusOr<double> ReadBound(std::string_view text) {
  text = Trim(text);
  if (text.empty()) return InvalidArgument("a bound is missing");
  double value = 0;
  const bool hexadecimal = text.find_first_of("xX") != std::string_view::npos;  // not in Python
  if (hexadecimal || !absl::SimpleAtod(WithoutSeparators(text), &value)) {
    return InvalidArgument("\"{}\" is not a number", text);
  }
  if (!(value > 0)) return InvalidArgument("{} is not above 0", value);
  return value;
}

struct Bounds {
  double upper = 0;
  std::optional<double> lower;
};

absl::StatusOr<Bounds> ReadBounds(std::string_view text) {
  Bounds bounds;
  const size_t cut = text.find('_');
  if (cut != std::string_view::npos) {
    TANDEM_ASSIGN_OR_RETURN(bounds.lower, ReadBound(text.substr(0, cut)));
    text.remove_prefix(cut + 1);
  }
  TANDEM_ASSIGN_OR_RETURN(bounds.upper, ReadBound(text));
  if (bounds.lower.value_or(0) > bounds.upper) {
    return InvalidArgument("the lower bound {} is above the upper bound {}", *bounds.lower,
                           bounds.upper);
  }
  return bounds;
}

// Bounds of weights, which are floats. An upper bound that a float rounds to 0 would make every
// weight 0.
absl::StatusOr<Bounds> ReadWeightBounds(const std::string& text) {
  TANDEM_ASSIGN_OR_RETURN(const Bounds bounds, ReadBounds(text));
  TANDEM_RETURN_IF_ERROR(CheckFitsFloat(bounds.upper));
  if (static_cast<float>(bounds.upper) > 0) return bounds;
  return InvalidArgument("{} is beyond the range of a float", bounds.upper);
}

absl::StatusOr<RejectionCriterion> ReadName(const std::string& name) {
  using Level = std::pair<std::string_view, RejectionLevel>;
  for (const auto& [prefix, level] :
       {Level{"token_k", RejectionLevel::kToken}, Level{"seq_sum_k", RejectionLevel::kSequenceSum},
        Level{"seq_mean_k", RejectionLevel::kSequenceMean},
        Level{"seq_max_k", RejectionLevel::kSequenceMax}}) {
    if (!name.starts_with(prefix) || name.size() != prefix.size() + 1) continue;
    const int which = name.back() - '1';
    const int first = level == RejectionLevel::kSequenceMax ? 1 : 0;
    if (which < first || which > 2) break;
    return RejectionCriterion{
        .name = name, .level = level, .divergence = static_cast<DivergenceKind>(which)};
  }
  return InvalidArgument("\"{}\" is not a rejection criterion; use {}", name, kNames);
}

absl::Status ReadThreshold(const std::string& text, RejectionCriterion& criterion) {
  TANDEM_ASSIGN_OR_RETURN(Bounds bounds, ReadBounds(text));
  if (criterion.divergence != DivergenceKind::kK1) {
    if (bounds.lower) return InvalidArgument("k2 and k3 have an upper bound only, not \"lo_hi\"");
    TANDEM_RETURN_IF_ERROR(CheckFitsFloat(bounds.upper));
    criterion.upper = static_cast<float>(bounds.upper);
    return absl::OkStatus();
  }
  if (!bounds.lower) bounds.lower = 1 / bounds.upper;
  if (!(*bounds.lower > 0) || *bounds.lower > bounds.upper) {
    return InvalidArgument(
        "a single bound {} of a ratio must be finite and at least 1: the lower "
        "one is its reciprocal; or give \"lo_hi\"",
        bounds.upper);
  }
  criterion.upper = static_cast<float>(std::log(bounds.upper));
  criterion.lower = static_cast<float>(std::log(*bounds.lower));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ImportanceBounds> ParseImportanceBounds(const std::string& text) {
  const absl::StatusOr<Bounds> bounds = ReadWeightBounds(text);
  if (!bounds.ok()) {
    return InvalidArgument(
        "\"{}\": {}; give one upper bound, such as 2.0, or \"lo_hi\", such as "
        "0.5_2.0",
        text, std::string(bounds.status().message()));
  }
  ImportanceBounds result{.upper = static_cast<float>(bounds->upper)};
  if (bounds->lower) result.lower = static_cast<float>(*bounds->lower);
  return result;
}

absl::StatusOr<std::vector<RejectionCriterion>> ParseRejection(const std::string& names,
                                                               const std::string& thresholds) {
  std::vector<RejectionCriterion> criteria;
  for (const std::string& name : Parts(names)) {
    TANDEM_ASSIGN_OR_RETURN(RejectionCriterion criterion, ReadName(name));
    const auto same = [&name](const RejectionCriterion& other) { return other.name == name; };
    if (std::none_of(criteria.begin(), criteria.end(), same)) {
      criteria.push_back(std::move(criterion));
    }
  }
  if (criteria.empty()) {
    return InvalidArgument("\"{}\" names no rejection criterion; use {}", names, kNames);
  }
  const std::vector<std::string> parts = Parts(thresholds);
  if (parts.size() != 1 && parts.size() != criteria.size()) {
    return InvalidArgument(
        "\"{}\" has {} thresholds for {} criteria; give one for all, or one for "
        "each",
        thresholds, parts.size(), criteria.size());
  }
  for (size_t i = 0; i < criteria.size(); ++i) {
    const std::string& text = parts[parts.size() == 1 ? 0 : i];
    const absl::Status read = ReadThreshold(text, criteria[i]);
    if (read.ok()) continue;
    return InvalidArgument("threshold \"{}\" of {}: {}; {}", text, criteria[i].name,
                           std::string(read.message()), kGrammar);
  }
  return criteria;
}

}  // namespace tandem
