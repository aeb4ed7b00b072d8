// Rows of a data file with verl's columns, checked but not yet tokenized.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

namespace tandem {

struct DataRow {
  // Chat messages (ordered, because templates print mappings in order), or null if `text` is the
  // prompt.
  nlohmann::ordered_json messages;
  std::string text;
  std::string data_source;
  std::string ground_truth;     // reward_model.ground_truth as text; numbers and lists as JSON
  std::string extra_info_json;  // {} when absent
  std::string place;            // "train.jsonl:17", for errors
};

struct ColumnNames {
  std::string prompt = "prompt";            // data.prompt_key
  std::string data_source = "data_source";  // data.reward_fn_key
};

// Reads one JSON object per line and skips blank lines. `max_rows` -1: all. Errors name file and
// line: NotFound (no such file), InvalidArgument (not JSON, not an object, a missing or wrong
// column, a message without role or text, a multimodal column that is not empty, an empty file,
// Parquet).
absl::StatusOr<std::vector<DataRow>> ReadJsonlRows(const std::string& path,
                                                   const ColumnNames& columns,
                                                   int64_t max_rows);

// InvalidArgument: this is the first line of a Parquet file; the message says how to convert it to
// JSONL.
absl::Status RefuseParquet(const std::string& path, const std::string& first_line);

}  // namespace tandem
