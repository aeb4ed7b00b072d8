#include "controller/data/datasets.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/json_nesting.h"
#include "common/base/status.h"
#include "common/formats/files.h"
#include "controller/data/jsonl_rows.h"
#include "controller/data/shuffled_prompts.h"
#include "controller/reward/scorers/math_reward.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Collects converted rows.
class ConvertedRows {
 public:
  explicit ConvertedRows(const RowConverter& convert) : convert_(convert) {}

  absl::Status Add(const std::string& object, const std::string& place) {
    TANDEM_RETURN_IF_ERROR(Annotate(CheckJsonNesting(object), place));
    const Json row = Json::parse(object, nullptr, /*allow_exceptions=*/false);
    if (!row.is_object()) return InvalidArgument("{}: this is not a JSON object", place);
    const absl::StatusOr<Json> converted = convert_(row, count_);
    if (!converted.ok()) return Annotate(converted.status(), place);
    text_ += converted->dump() + "\n";
    ++count_;
    return absl::OkStatus();
  }

  const std::string& text() const { return text_; }
  int64_t count() const { return count_; }

 private:
  const RowConverter& convert_;
  std::string text_;
  int64_t count_ = 0;
};

absl::Status AddLines(const std::string& path, ConvertedRows& rows) {
  std::ifstream file(path);
  if (!file) return MakeStatus(absl::StatusCode::kNotFound, "cannot read {}", path);
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (number == 1) TANDEM_RETURN_IF_ERROR(RefuseParquet(path, line));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    TANDEM_RETURN_IF_ERROR(rows.Add(line, fmt::format("{}:{}", path, number)));
  }
  return absl::OkStatus();
}

absl::Status AddFolder(const std::string& path, ConvertedRows& rows) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(path, error), end; it != end && !error;
       it.increment(error)) {
    if (it->path().extension() == ".json") files.push_back(it->path().string());
  }
  if (error) {
    return MakeStatus(absl::StatusCode::kNotFound, "cannot list {}: {}", path, error.message());
  }
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) {
    TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(file));
    TANDEM_RETURN_IF_ERROR(rows.Add(text, file));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> ConvertRows(const std::string& input,
                                    const std::string& output,
                                    const RowConverter& convert) {
  ConvertedRows rows(convert);
  std::error_code error;
  if (fs::equivalent(input, output, error)) {
    return InvalidArgument("{} is both input and output, and would be overwritten; name another",
                           output);
  }
  const bool folder = fs::is_directory(input, error);
  TANDEM_RETURN_IF_ERROR(folder ? AddFolder(input, rows) : AddLines(input, rows));
  if (rows.count() == 0) {
    return InvalidArgument("{}: {}", input, folder ? "no .json files" : "the file has no rows");
  }
  const fs::path parent = fs::path(output).parent_path();
  if (!parent.empty()) TANDEM_RETURN_IF_ERROR(MakeFolder(parent));
  TANDEM_RETURN_IF_ERROR(WriteFileAtomically(output, rows.text()));
  return rows.count();
}

absl::StatusOr<std::string> TextColumn(const Json& row, const std::string& column) {
  if (row.contains(column) && row[column].is_string()) return row[column].get<std::string>();
  return InvalidArgument("column \"{}\" is missing or no text", column);
}

absl::Status CheckTruthText(const std::string& truth) {
  if (truth.find_first_not_of(" \t\r\n") != std::string::npos) return absl::OkStatus();
  return InvalidArgument(
      "the final answer is empty: no response can be judged by it; correct the row or leave it "
      "out");
}

Json MakeDataRow(const std::string& data_source,
                 const std::string& question,
                 const std::string& ground_truth,
                 Json extra_info) {
  Json out;
  out["data_source"] = data_source;
  out["prompt"] = {{{"role", "user"}, {"content", question}}};
  out["ability"] = "math";
  out["reward_model"] = {{"style", "rule"}, {"ground_truth", ground_truth}};
  out["extra_info"] = std::move(extra_info);
  return out;
}

namespace {

struct Pair {
  int64_t a, b;
};

std::string AdditionRow(int64_t a, int64_t b, const char* split, int64_t index) {
  nlohmann::ordered_json row;
  row["data_source"] = "tandem/addition";
  row["prompt"] = {
      {{"role", "user"},
       {"content", fmt::format("What is {} + {}? Answer with just the number.", a, b)}}};
  row["ability"] = "math";
  row["reward_model"] = {{"style", "rule"}, {"ground_truth", std::to_string(a + b)}};
  row["extra_info"] = {{"split", split}, {"index", index}};
  return row.dump() + "\n";
}

// Rows for both orders of each pair, or one row if the operands are equal.
std::string AdditionRows(const std::vector<Pair>& pairs, const char* split, int64_t* count) {
  std::string text;
  for (const Pair& pair : pairs) {
    text += AdditionRow(pair.a, pair.b, split, (*count)++);
    if (pair.a != pair.b) text += AdditionRow(pair.b, pair.a, split, (*count)++);
  }
  return text;
}

}  // namespace

absl::StatusOr<AdditionFiles> MakeAddition(const std::string& directory,
                                           const AdditionOptions& options) {
  if (options.max_operand < 1 || options.max_operand > 9999) {
    return InvalidArgument("the largest operand must be 1..9999, not {}", options.max_operand);
  }
  if (!(options.holdout >= 0.0 && options.holdout < 1.0)) {
    return InvalidArgument("the held-out share must be at least 0 and below 1, not {}",
                           options.holdout);
  }
  std::vector<Pair> pairs;
  for (int64_t a = 0; a <= options.max_operand; ++a) {
    for (int64_t b = a; b <= options.max_operand; ++b) pairs.push_back({a, b});
  }
  const auto held_out =
      static_cast<size_t>(std::llround(options.holdout * static_cast<double>(pairs.size())));
  const Permutation order(pairs.size(), options.seed, 0);
  std::vector<Pair> train, val;
  for (size_t i = 0; i < pairs.size(); ++i) {
    (i < held_out ? val : train).push_back(pairs[order(i)]);
  }

  AdditionFiles files;
  const std::filesystem::path base(directory);
  TANDEM_RETURN_IF_ERROR(MakeFolder(directory));
  files.train_path = base / "train.jsonl";
  TANDEM_RETURN_IF_ERROR(
      WriteFileAtomically(files.train_path, AdditionRows(train, "train", &files.train_rows)));
  const std::string val_path = base / "val.jsonl";
  if (val.empty()) {
    std::error_code ignored;  // there usually is none
    std::filesystem::remove(val_path, ignored);
    return files;
  }
  files.val_path = val_path;
  TANDEM_RETURN_IF_ERROR(
      WriteFileAtomically(files.val_path, AdditionRows(val, "val", &files.val_rows)));
  return files;
}

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

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kDataSource = "DigitalLearningGmbH/MATH-lighteval";
constexpr const char* kMathInstruction =
    " Reason step by step and put the final answer within \\boxed{}.";

// A few solutions of the data set mark their answer with \fbox instead of \boxed.
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
