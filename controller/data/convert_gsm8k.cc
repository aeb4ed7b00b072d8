#include "controller/data/convert_gsm8k.h"

#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "common/base/io_status.h"
#include "common/base/status_macros.h"
#include "common/tensor_file/atomic_file.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kInstruction =
    " Work it out step by step, then give the final number after \"####\".";

absl::StatusOr<std::string> ConvertLine(const std::string& line, int64_t index) {
  const Json row = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!row.is_object()) return InvalidArgument("the line is no JSON object");
  for (const char* column : {"question", "answer"}) {
    if (!row.contains(column) || !row[column].is_string()) {
      return InvalidArgument("column \"{}\" is missing or no text", column);
    }
  }
  const auto answer = row["answer"].get<std::string>();
  const size_t mark = answer.rfind("#### ");
  if (mark == std::string::npos) {
    return InvalidArgument("the answer has no \"#### \" before its final number");
  }
  std::string truth = answer.substr(mark + 5);
  std::erase(truth, ',');
  truth.erase(truth.find_last_not_of(" \r\n\t") + 1);

  Json out;
  out["data_source"] = "openai/gsm8k";
  out["prompt"] = {
      {{"role", "user"}, {"content", row["question"].get<std::string>() + kInstruction}}};
  out["ability"] = "math";
  out["reward_model"] = {{"style", "rule"}, {"ground_truth", truth}};
  out["extra_info"] = {{"index", index}};
  return out.dump() + "\n";
}

}  // namespace

absl::StatusOr<int64_t> ConvertGsm8k(const std::string& input, const std::string& output) {
  std::ifstream file(input);
  if (!file) return MakeStatus(absl::StatusCode::kNotFound, "cannot read {}", input);
  std::string text, line;
  int64_t rows = 0;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    absl::StatusOr<std::string> row = ConvertLine(line, rows);
    if (!row.ok()) return Annotate(row.status(), fmt::format("{}:{}", input, number));
    text += *row;
    ++rows;
  }
  if (rows == 0) return InvalidArgument("{}: the file has no rows", input);
  const auto folder = std::filesystem::path(output).parent_path();
  if (!folder.empty()) TANDEM_RETURN_IF_ERROR(MakeFolder(folder));
  TANDEM_RETURN_IF_ERROR(WriteFileAtomically(output, text));
  return rows;
}

}  // namespace tandem
