#include <filesystem>
#include <set>

#include <catch2/catch.hpp>

#include "common/formats/files.h"
#include "controller/data/datasets.h"
#include "controller/data/jsonl_rows.h"
#include "tests/support/temp_dir.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)

namespace {

// The unordered pair of a prompt "What is a + b? ...".
std::pair<int, int> PairOf(const DataRow& row) {
  int a = -1, b = -1;
  const auto text = row.messages[0]["content"].get<std::string>();
  REQUIRE(std::sscanf(text.c_str(), "What is %d + %d?", &a, &b) == 2);
  REQUIRE(std::to_string(a + b) == row.ground_truth);
  return {std::min(a, b), std::max(a, b)};
}

}  // namespace

TEST_CASE("MakeAddition holds a pair out in both orders", "[data][make_addition]") {
  const testing::TempDir dir;
  const AdditionFiles files = MakeAddition(dir.path(), AdditionOptions{}).value();
  const auto train = ReadJsonlRows(files.train_path, ColumnNames{}, -1).value();
  const auto val = ReadJsonlRows(files.val_path, ColumnNames{}, -1).value();
  REQUIRE(static_cast<int64_t>(train.size()) == files.train_rows);
  REQUIRE(train.size() + val.size() == 21 * 21);
  std::set<std::pair<int, int>> train_pairs, val_pairs;
  for (const DataRow& row : train) train_pairs.insert(PairOf(row));
  for (const DataRow& row : val) val_pairs.insert(PairOf(row));
  REQUIRE(val_pairs.size() == 46);  // a fifth of 231
  REQUIRE(train_pairs.size() == 185);
  for (const auto& pair : val_pairs) REQUIRE_FALSE(train_pairs.contains(pair));
}

TEST_CASE("MakeAddition is a function of its options", "[data][make_addition]") {
  const testing::TempDir a, b, c;
  const auto first = MakeAddition(a.path(), {9, 0.2, 5}).value();
  const auto same = MakeAddition(b.path(), {9, 0.2, 5}).value();
  const auto other = MakeAddition(c.path(), {9, 0.2, 6}).value();
  REQUIRE(ReadWholeFile(first.val_path).value() == ReadWholeFile(same.val_path).value());
  REQUIRE(ReadWholeFile(first.val_path).value() != ReadWholeFile(other.val_path).value());
}

TEST_CASE("MakeAddition writes no file of held-out pairs where there are none",
          "[data][make_addition]") {
  const testing::TempDir dir;
  REQUIRE(std::filesystem::exists(MakeAddition(dir.path(), {9, 0.2, 1})->val_path));
  // Pairs of the earlier file are trained on now.
  const auto files = MakeAddition(dir.path(), {9, 0.0, 1});
  REQUIRE(files.ok());
  REQUIRE(files->val_path.empty());
  REQUIRE(files->val_rows == 0);
  REQUIRE(files->train_rows == 100);
  REQUIRE_FALSE(std::filesystem::exists(dir.path() / "val.jsonl"));
}

TEST_CASE("MakeAddition refuses options out of range", "[data][make_addition]") {
  const testing::TempDir dir;
  REQUIRE_FALSE(MakeAddition(dir.path(), {0, 0.2, 1}).ok());
  REQUIRE_FALSE(MakeAddition(dir.path(), {20, 1.0, 1}).ok());
  REQUIRE_FALSE(MakeAddition("/proc/no/such/place", {20, 0.2, 1}).ok());
}
