#include "controller/wire/sample_filter.h"

#include <array>
#include <cmath>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/status.h"
#include "common/types/sample.h"
#include "controller/store/run_store.h"

namespace tandem {
namespace {

constexpr size_t kMostConditions = 16;

constexpr std::array<std::pair<const char*, SampleField>, 11> kFields = {{
    {"reward", SampleField::kReward},
    {"length", SampleField::kLength},
    {"prompt_length", SampleField::kPromptLength},
    {"advantage", SampleField::kAdvantage},
    {"min_log_prob", SampleField::kMinLogProb},
    {"repetition", SampleField::kRepetition},
    {"version", SampleField::kVersion},
    {"group", SampleField::kGroup},
    {"index", SampleField::kIndex},
    {"end", SampleField::kEnd},
    {"kind", SampleField::kKind},
}};

constexpr std::array<std::pair<const char*, FinishReason>, 4> kEnds = {{
    {"stop", FinishReason::kStop},
    {"length", FinishReason::kLength},
    {"aborted", FinishReason::kAborted},
    {"cut", FinishReason::kCut},
}};

template <typename Pairs>
std::string NamesOf(const Pairs& pairs) {
  std::vector<std::string> names;
  for (const auto& pair : pairs) names.emplace_back(pair.first);
  return fmt::format("{}", fmt::join(names, ", "));
}

absl::StatusOr<SampleField> FieldNamed(std::string_view name) {
  for (const auto& [known, field] : kFields) {
    if (name == known) return field;
  }
  return InvalidArgument("samples have no field \"{}\"; they have {}", name, NamesOf(kFields));
}

absl::StatusOr<double> NumberOf(SampleField field, std::string_view value) {
  if (field == SampleField::kEnd) {
    for (const auto& [name, end] : kEnds) {
      if (value == name) return static_cast<double>(end);
    }
    return InvalidArgument("\"{}\" is no end of a sample; there are {}", value, NamesOf(kEnds));
  }
  if (field == SampleField::kKind) {
    for (size_t kind = 0; kind < kGroupKinds; ++kind) {
      if (value == kGroupKindNames[kind]) return static_cast<double>(kind);
    }
    return InvalidArgument("\"{}\" is no kind of a group; there are {}", value,
                           fmt::join(kGroupKindNames, ", "));
  }
  double number = 0;
  if (!absl::SimpleAtod({value.data(), value.size()}, &number) || !std::isfinite(number)) {
    return InvalidArgument("\"{}\" is no number", value);
  }
  return number;
}

// Takes words, signs and values from the front of a text.
class FilterReader {
 public:
  explicit FilterReader(std::string_view text) : rest_(text) {}

  bool AtEnd() {
    SkipSpace();
    return rest_.empty();
  }

  std::string_view TakeName() {
    SkipSpace();
    return Take(
        [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; });
  }

  absl::StatusOr<Comparison> TakeSign() {
    SkipSpace();
    const std::string_view sign =
        Take([](char c) { return c == '=' || c == '!' || c == '<' || c == '>'; });
    for (size_t i = 0; i < kComparisons; ++i) {
      if (sign == kComparisonSigns[i] || (sign == "==" && i == 0))
        return static_cast<Comparison>(i);
    }
    return InvalidArgument("a field is followed by one of {}", fmt::join(kComparisonSigns, " "));
  }

  std::string_view TakeValue() {
    SkipSpace();
    return Take([](char c) { return !absl::ascii_isspace(static_cast<unsigned char>(c)); });
  }

 private:
  void SkipSpace() {
    Take([](char c) { return absl::ascii_isspace(static_cast<unsigned char>(c)); });
  }

  template <typename Belongs>
  std::string_view Take(Belongs belongs) {
    size_t length = 0;
    while (length < rest_.size() && belongs(rest_[length])) ++length;
    const std::string_view taken = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return taken;
  }

  std::string_view rest_;
};

absl::StatusOr<SampleCondition> TakeCondition(FilterReader& reader) {
  SampleCondition condition;
  TANDEM_ASSIGN_OR_RETURN(condition.field, FieldNamed(reader.TakeName()));
  TANDEM_ASSIGN_OR_RETURN(condition.comparison, reader.TakeSign());
  TANDEM_ASSIGN_OR_RETURN(condition.number, NumberOf(condition.field, reader.TakeValue()));
  const bool has_order =
      condition.field != SampleField::kEnd && condition.field != SampleField::kKind;
  if (!has_order && condition.comparison != Comparison::kEqual &&
      condition.comparison != Comparison::kNotEqual) {
    return InvalidArgument("end and kind are compared by = or !=");
  }
  return condition;
}

}  // namespace

absl::StatusOr<std::vector<SampleCondition>> ParseSampleFilter(std::string_view text) {
  std::vector<SampleCondition> conditions;
  FilterReader reader(text);
  if (reader.AtEnd()) return conditions;
  while (true) {
    if (conditions.size() == kMostConditions) {
      return InvalidArgument("a filter has at most {} conditions", kMostConditions);
    }
    TANDEM_ASSIGN_OR_RETURN(const SampleCondition condition, TakeCondition(reader));
    conditions.push_back(condition);
    if (reader.AtEnd()) return conditions;
    if (const std::string_view word = reader.TakeName(); word != "and") {
      return InvalidArgument("conditions are joined by \"and\", not by \"{}\"", word);
    }
  }
}

absl::StatusOr<std::optional<SampleOrder>> ParseSampleOrder(std::string_view text) {
  if (text.empty()) return std::nullopt;
  SampleOrder order;
  order.descending = text.front() == '-';
  if (order.descending) text.remove_prefix(1);
  TANDEM_ASSIGN_OR_RETURN(order.field, FieldNamed(text));
  return order;
}

}  // namespace tandem
