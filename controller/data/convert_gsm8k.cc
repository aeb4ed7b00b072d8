#include "controller/data/convert_gsm8k.h"

#include <nlohmann/json.hpp>

#include "common/base/status_macros.h"
#include "controller/data/convert_rows.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kGsm8kInstruction =
    " Work it out step by step, then give the final number after \"####\".";

absl::StatusOr<Json> ConvertGsm8kRow(const Json& row, int64_t index) {
  TANDEM_ASSIGN_OR_RETURN(const std::string question, TextColumn(row, "question"));
  TANDEM_ASSIGN_OR_RETURN(const std::string answer, TextColumn(row, "answer"));
  const size_t mark = answer.rfind("#### ");
  if (mark == std::string::npos) {
    return InvalidArgument("the answer has no \"#### \" before its final number");
  }
  std::string truth = answer.substr(mark + 5);
  std::erase(truth, ',');
  truth.erase(truth.find_last_not_of(" \r\n\t") + 1);
  TANDEM_RETURN_IF_ERROR(CheckTruthText(truth));
  return MakeDataRow("openai/gsm8k", question + kGsm8kInstruction, truth, {{"index", index}});
}

}  // namespace

absl::StatusOr<int64_t> ConvertGsm8k(const std::string& input, const std::string& output) {
  return ConvertRows(input, output, &ConvertGsm8kRow);
}

}  // namespace tandem
