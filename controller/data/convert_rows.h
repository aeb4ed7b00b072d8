// From a user's files to rows in verl's columns: what all converters share.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <nlohmann/json_fwd.hpp>

namespace tandem {

// Makes the row of the data file from one of the input, an object. `index`: rows before it.
using RowConverter = std::function<absl::StatusOr<nlohmann::ordered_json>(
    const nlohmann::ordered_json& row, int64_t index)>;

// `input` is a file with a JSON object per line, or a folder: every .json file below it is one
// object, in order of their paths. Writes `output` atomically, missing folders with it; returns the
// rows written. Errors name file and line. NotFound: no such input.
absl::StatusOr<int64_t> ConvertRows(const std::string& input,
                                    const std::string& output,
                                    const RowConverter& convert);

// The text in `column`. InvalidArgument: there is none.
absl::StatusOr<std::string> TextColumn(const nlohmann::ordered_json& row,
                                       const std::string& column);

// InvalidArgument: a ground truth without a visible character, which no response is judged by.
absl::Status CheckTruthText(const std::string& truth);

// A row with one user message.
nlohmann::ordered_json MakeDataRow(const std::string& data_source,
                                   const std::string& question,
                                   const std::string& ground_truth,
                                   nlohmann::ordered_json extra_info);

}  // namespace tandem
