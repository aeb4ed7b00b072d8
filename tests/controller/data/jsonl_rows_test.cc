#include "controller/data/jsonl_rows.h"

#include <fstream>

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)

namespace {

using tandem::testing::Has;

constexpr const char* kGood =
    R"({"prompt": [{"role": "user", "content": "1 + 1?"}], "data_source": "s", )"
    R"("reward_model": {"style": "rule", "ground_truth": 2}, "extra_info": {"index": 7}})";

absl::StatusOr<std::vector<DataRow>> Read(const std::string& text, int64_t max_rows = -1) {
  const testing::TempDir dir;
  const std::string path = (dir.path() / "rows.jsonl").string();
  std::ofstream(path) << text;
  return ReadJsonlRows(path, ColumnNames{}, max_rows);
}

std::string Error(const std::string& text) { return std::string(Read(text).status().message()); }

}  // namespace

TEST_CASE("ReadJsonlRows reads verl's columns and skips blank lines", "[data][jsonl]") {
  const std::string text_row =
      R"({"prompt": "2 + 2 =", "data_source": "s", "reward_model": {"ground_truth": "4"}})";
  const auto rows = Read(std::string(kGood) + "\n\n" + text_row + "\n").value();
  REQUIRE(rows.size() == 2);
  REQUIRE(rows[0].messages[0]["content"] == "1 + 1?");
  REQUIRE(rows[0].ground_truth == "2");
  REQUIRE(rows[0].extra_info_json == R"({"index":7})");
  REQUIRE(rows[1].text == "2 + 2 =");
  REQUIRE(rows[1].messages.is_null());
  REQUIRE(Has(rows[1].place, "rows.jsonl:3"));
  REQUIRE(Read(std::string(kGood) + "\n" + kGood, 1).value().size() == 1);
}

TEST_CASE("A Parquet file is refused with how to convert it", "[data][jsonl]") {
  const std::string magic("PAR1\x15\x04\x15\n\0PAR1", 13);
  REQUIRE(Read(magic).status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(Has(Error(magic), "rows.jsonl: this is a Parquet file"));
  REQUIRE(Has(Error(magic), "rows.jsonl').to_json('"));
  REQUIRE(Has(Error(magic), "lines=True"));
}

TEST_CASE("ReadJsonlRows names file, line and reason of a bad row", "[data][jsonl]") {
  REQUIRE(Has(Error(std::string(kGood) + "\nnot json"), "rows.jsonl:2: the line is not JSON"));
  REQUIRE(Has(Error("[1]"), "not an object"));
  REQUIRE(Has(Error("{\"question\": 1}"), "data.prompt_key"));
  REQUIRE(Has(Error("{\"prompt\": 5}"), "not a list of messages or a text"));
  REQUIRE(Has(Error("{\"prompt\": []}"), "no messages"));
  REQUIRE(Has(Error(R"({"prompt": [{"content": "x"}]})"), "role"));
  const std::string alien = Error(R"({"prompt": [{"role": "alien", "content": "x"}]})");
  REQUIRE(Has(alien, "rows.jsonl:1: "));
  REQUIRE(Has(alien, "\"alien\" is not a role of a chat; one of system, developer, user"));
  REQUIRE(Has(Error(R"({"prompt": [{"role": "user", "content": [{"type": "image"}]}]})"),
              "multimodal"));
  REQUIRE(Has(Error(R"({"prompt": "x"})"), "data.reward_fn_key"));
  REQUIRE(Has(Error(R"({"prompt": "x", "data_source": "s"})"), "reward_model"));
  REQUIRE(Has(Error(""), "no rows"));
}

TEST_CASE("ReadJsonlRows refuses multimodal columns by name", "[data][jsonl]") {
  REQUIRE(Has(Error(R"({"images": ["a.png"], "prompt": "x"})"), "\"images\""));
  REQUIRE(Has(Error(R"({"audios": ["a.wav"], "prompt": "x"})"), "\"audios\""));
  REQUIRE(Read(R"({"videos": [], "prompt": "x", "data_source": "s", )"
               R"("reward_model": {"ground_truth": "1"}})")
              .ok());
}

TEST_CASE("ReadJsonlRows names a missing file", "[data][jsonl]") {
  const auto status = ReadJsonlRows("/nonexistent/x.jsonl", ColumnNames{}, -1).status();
  REQUIRE(status.code() == absl::StatusCode::kNotFound);
  REQUIRE(Has(std::string(status.message()), "/nonexistent/x.jsonl"));
}
