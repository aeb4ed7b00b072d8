#include "controller/data/make_addition.h"

#include <cmath>
#include <filesystem>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/io_status.h"
#include "common/base/status_macros.h"
#include "common/formats/atomic_file.h"
#include "controller/data/permutation.h"

namespace tandem {
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

// Both orders of each pair; one row where they are the same.
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
  files.val_path = base / "val.jsonl";
  TANDEM_RETURN_IF_ERROR(
      WriteFileAtomically(files.train_path, AdditionRows(train, "train", &files.train_rows)));
  TANDEM_RETURN_IF_ERROR(
      WriteFileAtomically(files.val_path, AdditionRows(val, "val", &files.val_rows)));
  return files;
}

}  // namespace tandem
