// Which samples of a step a query wants, beyond their step.
#pragma once

#include <array>
#include <cstddef>

namespace tandem {

// What conditions compare and orders sort by. kEnd is a FinishReason and kKind the GroupKind of the
// sample's group, both as numbers.
enum class SampleField {
  kReward,
  kLength,  // tokens of the response
  kPromptLength,
  kAdvantage,
  kMinLogProb,
  kRepetition,
  kVersion,
  kGroup,
  kIndex,
  kEnd,
  kKind
};

enum class Comparison { kEqual, kNotEqual, kLess, kAtMost, kGreater, kAtLeast };
inline constexpr size_t kComparisons = 6;
// In SQL and in what users write.
inline constexpr std::array<const char*, kComparisons> kComparisonSigns = {"=",  "!=", "<",
                                                                           "<=", ">",  ">="};

// A sample of which the field is not known meets no condition on it.
struct SampleCondition {
  SampleField field = SampleField::kReward;
  Comparison comparison = Comparison::kEqual;
  double number = 0;
};

}  // namespace tandem
