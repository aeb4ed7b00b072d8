// Converts a user's files to rows with verl's columns. This part is shared by all converters.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <nlohmann/json_fwd.hpp>

namespace tandem {

// Makes a row of the data file from an input row, which is an object. `index`: the number of rows
// before it.
using RowConverter = std::function<absl::StatusOr<nlohmann::ordered_json>(
    const nlohmann::ordered_json& row, int64_t index)>;

// `input` is a file with a JSON object per line, or a folder, in which every .json file at any
// depth is one object, in order of their paths. Writes `output` atomically, creates missing
// folders, and returns the number of rows. Errors name file and line. NotFound: `input` does not
// exist.
absl::StatusOr<int64_t> ConvertRows(const std::string& input,
                                    const std::string& output,
                                    const RowConverter& convert);

// The text in `column`. InvalidArgument: the column is missing or not a text.
absl::StatusOr<std::string> TextColumn(const nlohmann::ordered_json& row,
                                       const std::string& column);

// InvalidArgument: the ground truth has no visible character, so that no response can match it.
absl::Status CheckTruthText(const std::string& truth);

// A row with a single user message.
nlohmann::ordered_json MakeDataRow(const std::string& data_source,
                                   const std::string& question,
                                   const std::string& ground_truth,
                                   nlohmann::ordered_json extra_info);

// The quickstart's task: additions, whose answers can be verified. Held-out pairs show whether the
// model has learned to add or only memorized the training pairs.
struct AdditionOptions {
  int64_t max_operand = 20;  // operands are 0..max_operand
  double holdout = 0.2;      // share of the unordered pairs that are held out from training
  uint64_t seed = 1;
};

struct AdditionFiles {
  std::string train_path, val_path;
  int64_t train_rows = 0, val_rows = 0;
};

// Writes train.jsonl and val.jsonl into `directory`, which is created if missing. Files are written
// atomically and have the same bytes for the same options. If a pair {a, b} is held out, neither a
// + b nor b + a is in the training data. Where nothing is held out there is no val.jsonl, and one
// of an earlier call is removed, because its pairs are trained on now; val_path is empty.
// InvalidArgument: options out of range; ResourceExhausted and other codes: errors of the disk.
absl::StatusOr<AdditionFiles> MakeAddition(const std::string& directory,
                                           const AdditionOptions& options);

// Converts a GSM8K file (question and answer per line). Reads `input` as ConvertRows does, writes
// `output` atomically, and returns the number of rows. The ground truth is the text after the last
// "#### " of the answer, without commas. Errors name file and line.
absl::StatusOr<int64_t> ConvertGsm8k(const std::string& input, const std::string& output);

// Converts MATH files (Hendrycks et al. 2021: problem, solution, level, type). `input`: JSONL, or
// the folder of the original release with a file per problem (ConvertRows). The ground truth is the
// column answer where it exists (MATH-500), else the content of the last box of the solution; an
// empty answer is refused. level, type and subject are copied to extra_info. Returns the number of
// rows; errors name file and line.
absl::StatusOr<int64_t> ConvertMath(const std::string& input, const std::string& output);

}  // namespace tandem
