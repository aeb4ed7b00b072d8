#include <filesystem>

#include <catch2/catch.hpp>

#include "common/formats/files.h"
#include "common/formats/hf_checkpoint.h"
#include "tests/common/formats/file_size_limit.h"
#include "tests/common/formats/test_checkpoint.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Every element of row r is r.
absl::StatusOr<const Bf16*> RowNumbers(const TensorSpec& tensor, int64_t row_begin, int64_t rows) {
  static std::vector<Bf16> values;
  const int64_t row_elements = NumElements(tensor.shape) / tensor.shape[0];
  values.resize(static_cast<size_t>(rows * row_elements));
  for (int64_t i = 0; i < rows * row_elements; ++i) {
    values[static_cast<size_t>(i)] = ToBf16(static_cast<float>(row_begin + i / row_elements));
  }
  return values.data();
}

// The directory appears at once, as in a checkpoint and in a merge of adapters.
absl::Status ExportAtOnce(const ModelSpec& spec,
                          const std::string& tokenizer_dir,
                          const std::string& out_dir,
                          const RowSource& source) {
  const auto directory = AtomicDirectory::Create(out_dir);
  if (!directory.ok()) return directory.status();
  const absl::Status written =
      WriteHfFiles(spec, tokenizer_dir, (*directory)->partial_path(), source);
  return written.ok() ? (*directory)->Commit() : written;
}

}  // namespace

TEST_CASE("An exported checkpoint opens and has the rows supplied", "[tensor_file][export]") {
  const testing::TempDir dir;
  testing::WriteTokenizerFiles(dir.path());
  const std::string out = dir.path() / "out";
  const ModelSpec spec = testing::StoredSpec(false);
  REQUIRE(ExportAtOnce(spec, dir.path(), out, RowNumbers).ok());
  const ModelSpec read = LoadModelSpec(out).value();
  REQUIRE(read.parameters() == spec.parameters());
  REQUIRE(read.eos_token_ids == spec.eos_token_ids);
  REQUIRE(fs::exists(out + "/tokenizer.json"));
  REQUIRE(fs::exists(out + "/tokenizer_config.json"));
  REQUIRE(fs::exists(out + "/generation_config.json"));
  const auto checkpoint = HfCheckpoint::Open(out, read).value();
  std::vector<float> row(8);
  REQUIRE(checkpoint->ReadRows("lm_head.weight", 7, 1, DType::kFloat32, row.data()).ok());
  REQUIRE(row == std::vector<float>(8, 7.0f));
}

TEST_CASE("Tensors beyond a range arrive in ascending ranges", "[tensor_file][export]") {
  const testing::TempDir dir;
  testing::WriteTokenizerFiles(dir.path());
  ModelSpec spec = testing::StoredSpec();
  spec.hidden_size = 1024;
  spec.vocab_size = 20000;
  std::vector<int64_t> begins;
  const RowSource source = [&](const TensorSpec& tensor, int64_t begin, int64_t rows) {
    if (tensor.name == "model.embed_tokens.weight") begins.push_back(begin);
    return RowNumbers(tensor, begin, rows);
  };
  const std::string out = dir.path() / "out";
  REQUIRE(ExportAtOnce(spec, dir.path(), out, source).ok());
  // 512 rows of 2 KiB.
  REQUIRE(begins.size() == 40);
  for (size_t i = 0; i < begins.size(); ++i) REQUIRE(begins[i] == static_cast<int64_t>(i) * 512);
  const auto checkpoint = HfCheckpoint::Open(out, spec).value();
  std::vector<Bf16> row(1024);
  REQUIRE(checkpoint->ReadRows("model.embed_tokens.weight", 16400, 1, DType::kBFloat16, row.data())
              .ok());
  REQUIRE(row[1023] == ToBf16(16400.0f));
}

TEST_CASE("A failing source, a full disk or a missing tokenizer leave nothing",
          "[tensor_file][export]") {
  const testing::TempDir dir;
  testing::WriteTokenizerFiles(dir.path());
  const std::string out = dir.path() / "out";
  const RowSource failing = [](const TensorSpec& tensor, int64_t begin,
                               int64_t rows) -> absl::StatusOr<const Bf16*> {
    if (tensor.layer == 1) return absl::AbortedError("peer left");
    return RowNumbers(tensor, begin, rows);
  };
  const absl::Status aborted = ExportAtOnce(testing::StoredSpec(), dir.path(), out, failing);
  REQUIRE(aborted.code() == absl::StatusCode::kAborted);
  REQUIRE(aborted.message() == "exporting model.layers.1.input_layernorm.weight: peer left");
  absl::Status full;
  {
    const testing::FileSizeLimit limit(1024);
    full = ExportAtOnce(testing::StoredSpec(), dir.path(), out, RowNumbers);
  }
  REQUIRE(full.code() == absl::StatusCode::kResourceExhausted);
  const absl::Status missing =
      ExportAtOnce(testing::StoredSpec(), dir.path() / "nowhere", out, RowNumbers);
  REQUIRE(missing.code() == absl::StatusCode::kNotFound);
  REQUIRE(!fs::exists(out));
  REQUIRE(!fs::exists(PartialPath(out)));
}

}  // namespace tandem
