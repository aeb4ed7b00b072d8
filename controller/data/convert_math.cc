#include "controller/data/convert_math.h"

#include <optional>

#include <nlohmann/json.hpp>

#include "common/base/status_macros.h"
#include "controller/data/convert_rows.h"
#include "controller/reward/scorers/math_reward.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kDataSource = "DigitalLearningGmbH/MATH-lighteval";
constexpr const char* kMathInstruction =
    " Reason step by step and put the final answer within \\boxed{}.";

// A few solutions of the set frame their answer with \fbox.
std::optional<std::string> InsideFbox(const std::string& command) {
  const std::string open = "\\fbox{";
  if (!command.starts_with(open)) return std::nullopt;
  return command.substr(open.size(), command.size() - open.size() - 1);
}

absl::StatusOr<std::string> Truth(const Json& row) {
  if (row.contains("answer")) return TextColumn(row, "answer");
  TANDEM_ASSIGN_OR_RETURN(const std::string solution, TextColumn(row, "solution"));
  const std::optional<std::string> command = LastBoxCommand(solution);
  if (!command) return InvalidArgument("the solution has no \\boxed{{...}} with its final answer");
  std::optional<std::string> inside = OpenBox(*command);
  if (!inside) inside = InsideFbox(*command);
  if (inside) return *inside;
  return InvalidArgument("no braces follow the last box of the solution: {}", *command);
}

absl::StatusOr<Json> ConvertMathRow(const Json& row, int64_t index) {
  TANDEM_ASSIGN_OR_RETURN(const std::string problem, TextColumn(row, "problem"));
  TANDEM_ASSIGN_OR_RETURN(const std::string truth, Truth(row));
  TANDEM_RETURN_IF_ERROR(CheckTruthText(truth));
  Json extra = {{"index", index}};
  for (const char* column : {"level", "type", "subject"}) {
    if (row.contains(column)) extra[column] = row[column];
  }
  return MakeDataRow(kDataSource, problem + kMathInstruction, truth, extra);
}

}  // namespace

absl::StatusOr<int64_t> ConvertMath(const std::string& input, const std::string& output) {
  return ConvertRows(input, output, &ConvertMathRow);
}

}  // namespace tandem
