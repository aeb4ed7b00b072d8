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

// The quickstart's task: additions whose answers can be verified and whose held-out pairs show
// whether the model learned to add or only the training pairs.
struct AdditionOptions {
  int64_t max_operand = 20;  // operands are 0..max_operand
  double holdout = 0.2;      // share of the unordered pairs kept out of training
  uint64_t seed = 1;
};

struct AdditionFiles {
  std::string train_path, val_path;
  int64_t train_rows = 0, val_rows = 0;
};

// Writes train.jsonl and val.jsonl into `directory` (made if missing), atomically, the same bytes
// for the same options. A pair {a, b} is held out whole: neither a + b nor b + a is trained on.
// InvalidArgument: options out of range; ResourceExhausted and the like: the disk.
absl::StatusOr<AdditionFiles> MakeAddition(const std::string& directory,
                                           const AdditionOptions& options);

// A user's GSM8K file (question, answer per line) in verl's columns.

// Reads `input` as ConvertRows does, writes `output` atomically, returns the rows written. The
// ground truth is what follows the last "#### " of the answer, without commas. Errors name file and
// line.
absl::StatusOr<int64_t> ConvertGsm8k(const std::string& input, const std::string& output);

// A user's MATH files (Hendrycks et al. 2021: problem, solution, level, type) in verl's columns.

// `input`: JSONL, or the folder of the original release with a file per problem (ConvertRows).
// The ground truth is the column answer where there is one (MATH-500), else the last box of the
// solution. An answer that is empty is
// refused. level, type and subject go to extra_info. Returns the rows written; errors name file
// and line.
absl::StatusOr<int64_t> ConvertMath(const std::string& input, const std::string& output);

}  // namespace tandem
