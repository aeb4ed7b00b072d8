#include <fstream>

#include <catch2/catch.hpp>

#include "controller/data/datasets.h"
#include "controller/data/jsonl_rows.h"
#include "tests/support/temp_dir.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)

TEST_CASE("ConvertGsm8k writes rows that the data reader takes", "[data][convert]") {
  const testing::TempDir dir;
  const std::string in = (dir.path() / "in.jsonl").string(),
                    out = (dir.path() / "a folder" / "that is new" / "out.jsonl").string();
  std::ofstream(in) << R"({"question": "Two and two thousand?", "answer": "2+2000\n#### 2,002"})"
                    << "\n";
  REQUIRE(ConvertGsm8k(in, out).value() == 1);
  const auto rows = ReadJsonlRows(out, ColumnNames{}, -1).value();
  REQUIRE(rows[0].ground_truth == "2002");
  REQUIRE(rows[0].data_source == "openai/gsm8k");
}

TEST_CASE("ConvertGsm8k names the line it cannot convert", "[data][convert]") {
  const testing::TempDir dir;
  const std::string in = (dir.path() / "in.jsonl").string();
  std::ofstream(in) << R"({"question": "a", "answer": "no mark"})"
                    << "\n";
  const auto status = ConvertGsm8k(in, (dir.path() / "out.jsonl").string()).status();
  REQUIRE(std::string(status.message()).find("in.jsonl:1") != std::string::npos);
  std::ofstream(in) << R"({"question": "a", "answer": "none #### ,"})";
  const auto empty = ConvertGsm8k(in, (dir.path() / "out.jsonl").string()).status();
  REQUIRE(empty.message().find("in.jsonl:1: the final answer is empty") != std::string::npos);
  REQUIRE_FALSE(ConvertGsm8k("/nonexistent", in).ok());
}

TEST_CASE("ConvertGsm8k names a folder that it cannot make", "[data][convert]") {
  const testing::TempDir dir;
  const std::string in = (dir.path() / "in.jsonl").string();
  std::ofstream(in) << R"({"question": "a", "answer": "#### 1"})"
                    << "\n";
  const auto status = ConvertGsm8k(in, in + "/below a file/out.jsonl").status();
  REQUIRE(std::string(status.message()).find("below a file") != std::string::npos);
}
