#include "controller/data/convert_rows.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/io_status.h"
#include "common/base/status_macros.h"
#include "common/formats/atomic_file.h"
#include "controller/data/jsonl_rows.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Collects converted rows.
class ConvertedRows {
 public:
  explicit ConvertedRows(const RowConverter& convert) : convert_(convert) {}

  absl::Status Add(const std::string& object, const std::string& place) {
    const Json row = Json::parse(object, nullptr, /*allow_exceptions=*/false);
    if (!row.is_object()) return InvalidArgument("{}: this is no JSON object", place);
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

}  // namespace tandem
