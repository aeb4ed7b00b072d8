#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "controller/data/datasets.h"
#include "controller/data/jsonl_rows.h"
#include "tests/support/temp_dir.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)

namespace {

struct Files {
  testing::TempDir dir;
  std::string in = (dir.path() / "in.jsonl").string();
  std::string out = (dir.path() / "data" / "out.jsonl").string();

  // The error for a file of these lines.
  std::string Refusal(const std::string& lines) {
    std::ofstream(in) << lines;
    const auto status = ConvertMath(in, out).status();
    REQUIRE_FALSE(std::filesystem::exists(out));
    return std::string(status.message());
  }
};

}  // namespace

TEST_CASE("ConvertMath takes the ground truth from the last box", "[data][convert]") {
  Files f;
  std::ofstream(f.in) << R"({"problem": "Half of one?", "level": "Level 1", "type": "Algebra", )"
                      << R"("solution": "First $\\boxed{1}$, so $\\boxed{\\frac{1}{2}}$."})"
                      << "\n\n"
                      << R"({"problem": "Three?", "solution": "It is $\\fbox{3}$."})"
                      << "\n"
                      << R"({"problem": "Four?", "solution": "$\\boxed 4$"})"
                      << "\n"
                      << R"({"problem": "Five?", "answer": "5", "subject": "Algebra", "level": 2})"
                      << "\n";
  REQUIRE(ConvertMath(f.in, f.out).value() == 4);
  const auto rows = ReadJsonlRows(f.out, ColumnNames{}, -1).value();
  REQUIRE(rows[0].ground_truth == "\\frac{1}{2}");
  REQUIRE(rows[0].data_source == "DigitalLearningGmbH/MATH-lighteval");
  REQUIRE(rows[0].extra_info_json == R"({"index":0,"level":"Level 1","type":"Algebra"})");
  REQUIRE(rows[0].messages[0]["content"].get<std::string>().starts_with("Half of one? "));
  REQUIRE(rows[0].messages[0]["content"].get<std::string>().find("\\boxed{}") != std::string::npos);
  REQUIRE(rows[1].ground_truth == "3");
  REQUIRE(rows[2].ground_truth == "4");
  REQUIRE(rows[3].ground_truth == "5");
  REQUIRE(rows[3].extra_info_json == R"({"index":3,"level":2,"subject":"Algebra"})");
}

TEST_CASE("ConvertMath reads a folder with a file per problem in order of name",
          "[data][convert]") {
  Files f;
  const auto folder = f.dir.path() / "train";
  std::filesystem::create_directories(folder / "b");
  std::filesystem::create_directories(folder / "a");
  std::ofstream(folder / "b" / "1.json") << "{\n \"problem\": \"B\",\n \"answer\": \"2\"\n}\n";
  std::ofstream(folder / "a" / "2.json") << R"({"problem": "A", "answer": "1"})";
  std::ofstream(folder / "a" / "notes.txt") << "no problem";
  REQUIRE(ConvertMath(folder.string(), f.out).value() == 2);
  const auto rows = ReadJsonlRows(f.out, ColumnNames{}, -1).value();
  REQUIRE(rows[0].ground_truth == "1");
  REQUIRE(rows[1].ground_truth == "2");
  std::ofstream(folder / "a" / "3.json") << "[]";
  REQUIRE(std::string(ConvertMath(folder.string(), f.out).status().message()).find("a/3.json") !=
          std::string::npos);
}

TEST_CASE("ConvertMath refuses an empty final answer with its line", "[data][convert]") {
  Files f;
  const std::string good = R"({"problem": "a", "answer": "1"})";
  for (const char* empty :
       {R"({"problem": "a", "answer": ""})", R"({"problem": "a", "answer": " \n"})",
        R"({"problem": "a", "solution": "so $\\boxed{}$"})",
        R"({"problem": "a", "solution": "so $\\boxed{ }$"})"}) {
    INFO(empty);
    const std::string said = f.Refusal(good + "\n" + empty + "\n");
    REQUIRE(said.find("in.jsonl:2: the final answer is empty") != std::string::npos);
  }
}

TEST_CASE("ConvertMath refuses a Parquet file by name", "[data][convert]") {
  Files f;
  REQUIRE(f.Refusal("PAR1\x15").find("in.jsonl: this is a Parquet file") != std::string::npos);
}

TEST_CASE("ConvertMath names the line it cannot convert", "[data][convert]") {
  Files f;
  const std::string good = R"({"problem": "a", "answer": "1"})";
  REQUIRE(f.Refusal(good + "\n{\"problem\": \"a\", \"solution\": \"7\"}").find("in.jsonl:2") !=
          std::string::npos);
  REQUIRE(f.Refusal(R"({"problem": "a", "solution": "\\boxed{7"})").find("no \\boxed") !=
          std::string::npos);
  REQUIRE(f.Refusal(R"({"solution": "\\boxed{7}"})").find("\"problem\"") != std::string::npos);
  REQUIRE(f.Refusal(R"({"problem": "a", "answer": 7})").find("\"answer\"") != std::string::npos);
  REQUIRE(f.Refusal("7").find("not a JSON object") != std::string::npos);
  REQUIRE(f.Refusal("").find("no rows") != std::string::npos);
  REQUIRE(absl::IsNotFound(ConvertMath("/nonexistent", f.out).status()));
}

TEST_CASE("Converting a file onto itself is refused, and the file stays", "[data][convert]") {
  Files f;
  const std::string line = R"({"problem": "Two?", "solution": "$\\boxed{2}$"})";
  std::ofstream(f.in) << line;
  const std::string detour = (f.dir.path() / "." / "in.jsonl").string();
  const auto status = ConvertMath(f.in, detour).status();
  REQUIRE(std::string(status.message()).find("is both input and output") != std::string::npos);
  std::string kept;
  std::ifstream file(f.in);
  std::getline(file, kept);
  REQUIRE(kept == line);
}
