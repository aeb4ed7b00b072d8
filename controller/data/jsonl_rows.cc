#include "controller/data/jsonl_rows.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <utility>

#include <fmt/ranges.h>

#include "common/base/json_nesting.h"
#include "common/base/status.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<const char*, 3> kMultimodalColumns = {"images", "videos", "audios"};

constexpr std::array<const char*, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};

std::string TypeName(const Json& value) { return value.type_name(); }

absl::Status RefuseMultimodal(const Json& row) {
  for (const char* column : kMultimodalColumns) {
    if (row.contains(column) && !row[column].empty()) {
      return InvalidArgument(
          "column \"{}\" holds multimodal data, which is not supported: remove the column or the "
          "row",
          column);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckMessages(const Json& messages, const std::string& column) {
  if (messages.empty()) return InvalidArgument("column \"{}\" has no messages", column);
  for (const Json& message : messages) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string()) {
      return InvalidArgument("column \"{}\": every message needs a text \"role\"", column);
    }
    if (!message.contains("content") || !message["content"].is_string()) {
      return InvalidArgument(
          "column \"{}\": the content of a {} message is not text (multimodal parts are not "
          "supported)",
          column, message["role"].get<std::string>());
    }
    const auto role = message["role"].get<std::string>();
    if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
      return InvalidArgument("column \"{}\": \"{}\" is not a role of a chat; one of {} is", column,
                             role, fmt::join(kRoles, ", "));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadPrompt(const Json& row, const std::string& column, DataRow& out) {
  if (!row.contains(column)) {
    return InvalidArgument("no column \"{}\" (data.prompt_key); the row has: {}", column, [&row] {
      std::string names;
      for (const auto& [name, value] : row.items()) names += name + " ";
      return names;
    }());
  }
  const Json& prompt = row[column];
  if (prompt.is_string()) {
    out.text = prompt.get<std::string>();
    if (out.text.empty()) return InvalidArgument("column \"{}\" is an empty text", column);
    return absl::OkStatus();
  }
  if (!prompt.is_array()) {
    return InvalidArgument("column \"{}\" is {}, not a list of messages or a text", column,
                           TypeName(prompt));
  }
  TANDEM_RETURN_IF_ERROR(CheckMessages(prompt, column));
  out.messages = prompt;
  return absl::OkStatus();
}

std::string AsText(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

absl::Status ReadReward(const Json& row, const std::string& column, DataRow& out) {
  if (!row.contains(column) || !row[column].is_string()) {
    return InvalidArgument("column \"{}\" (data.reward_fn_key) must be a text", column);
  }
  out.data_source = row[column].get<std::string>();
  if (!row.contains("reward_model") || !row["reward_model"].is_object() ||
      !row["reward_model"].contains("ground_truth")) {
    return InvalidArgument("column \"reward_model\" must be an object with \"ground_truth\"");
  }
  out.ground_truth = AsText(row["reward_model"]["ground_truth"]);
  out.extra_info_json = row.contains("extra_info") ? row["extra_info"].dump() : "{}";
  return absl::OkStatus();
}

// The beginning of a line, with what a terminal would not show as it is replaced by '?'.
std::string Printable(const std::string& line) {
  std::string text = line.substr(0, 80);
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  }
  return text;
}

absl::StatusOr<DataRow> ParseRow(const std::string& line, const ColumnNames& columns) {
  TANDEM_RETURN_IF_ERROR(CheckJsonNesting(line));
  const Json row = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (row.is_discarded()) return InvalidArgument("the line is not JSON: {}", Printable(line));
  if (!row.is_object())
    return InvalidArgument("the line is a JSON {}, not an object", TypeName(row));
  DataRow out;
  TANDEM_RETURN_IF_ERROR(RefuseMultimodal(row));
  TANDEM_RETURN_IF_ERROR(ReadPrompt(row, columns.prompt, out));
  TANDEM_RETURN_IF_ERROR(ReadReward(row, columns.data_source, out));
  return out;
}

}  // namespace

absl::Status RefuseParquet(const std::string& path, const std::string& first_line) {
  if (!first_line.starts_with("PAR1")) return absl::OkStatus();
  const std::string stem = std::filesystem::path(path).replace_extension().string();
  return InvalidArgument(
      "{}: this is a Parquet file, and data is read as JSONL, one JSON object a line; convert it, "
      "with pandas for one: python3 -c \"import pandas; "
      "pandas.read_parquet('{}').to_json('{}.jsonl', "
      "orient='records', lines=True)\", and name the new file",
      path, path, stem);
}

absl::StatusOr<std::vector<DataRow>> ReadJsonlRows(const std::string& path,
                                                   const ColumnNames& columns,
                                                   int64_t max_rows) {
  std::error_code error;
  std::ifstream file(path);
  if (!file || std::filesystem::is_directory(path, error)) {
    return MakeStatus(absl::StatusCode::kNotFound, "cannot read the data file {}", path);
  }
  std::vector<DataRow> rows;
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (number == 1) TANDEM_RETURN_IF_ERROR(RefuseParquet(path, line));
    if (max_rows >= 0 && static_cast<int64_t>(rows.size()) >= max_rows) break;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string place = fmt::format("{}:{}", path, number);
    absl::StatusOr<DataRow> row = ParseRow(line, columns);
    if (!row.ok()) return Annotate(row.status(), place);
    row->place = place;
    rows.push_back(*std::move(row));
  }
  if (file.bad()) return MakeStatus(absl::StatusCode::kDataLoss, "reading {} failed", path);
  if (rows.empty()) return InvalidArgument("{}: the file has no rows", path);
  return rows;
}

}  // namespace tandem
