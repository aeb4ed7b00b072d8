#include "common/formats/safetensors.h"

#include <cstring>
#include <filesystem>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/common/formats/file_size_limit.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

using Catch::Matchers::Contains;

// A file with the given header text and `data_bytes` zero bytes.
std::string Raw(const std::string& header, size_t data_bytes) {
  uint64_t length = header.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file + header + std::string(data_bytes, '\0');
}

std::string SafetensorsOpenError(const std::string& content, absl::StatusCode code) {
  const testing::TempDir dir;
  const std::string path = dir.path() / "x.safetensors";
  REQUIRE(WriteFileAtomically(path, content).ok());
  const absl::Status status = SafetensorsFile::Open(path).status();
  REQUIRE(status.code() == code);
  const std::string message(status.message());
  REQUIRE_THAT(message, Contains(path));
  return message;
}

std::string Corruption(const std::string& header, size_t data_bytes) {
  return SafetensorsOpenError(Raw(header, data_bytes), absl::StatusCode::kDataLoss);
}

}  // namespace

TEST_CASE("A written safetensors file reads back", "[tensor_file][safetensors]") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "x.safetensors";
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};
  const std::vector<Bf16> b = {7, 8};
  auto writer = SafetensorsWriter::Create(path,
                                          {{"b", DType::kBFloat16, {2}},
                                           {"a", DType::kFloat32, {3, 2}},
                                           {"empty", DType::kFloat32, {0, 2}}},
                                          {{"format", "pt"}})
                    .value();
  // The second row first: slices come in any order.
  REQUIRE(writer->Write("a", a.data() + 2, 16, 8).ok());
  REQUIRE(writer->Write("b", b.data(), 4).ok());
  REQUIRE(writer->Write("a", a.data(), 8, 0).ok());
  REQUIRE(!std::filesystem::exists(path));
  REQUIRE(writer->Finish().ok());
  const auto file = SafetensorsFile::Open(path).value();
  REQUIRE(file->metadata().at("format") == "pt");
  REQUIRE(file->tensors().size() == 3);
  const TensorView view = file->View("a").value();
  REQUIRE(view.dtype == DType::kFloat32);
  REQUIRE(view.shape == std::vector<int64_t>{3, 2});
  REQUIRE(std::memcmp(view.data, a.data(), 24) == 0);
  REQUIRE(file->View("empty").value().elements() == 0);
  REQUIRE(file->Find("c") == nullptr);
  REQUIRE(file->View("c").status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("The writer refuses slices outside and tensors unfinished",
          "[tensor_file][safetensors]") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "x.safetensors";
  const float value = 1;
  {
    auto writer = SafetensorsWriter::Create(path, {{"a", DType::kFloat32, {2}}}).value();
    REQUIRE(!writer->Write("b", &value, 4).ok());
    REQUIRE(!writer->Write("a", &value, 4, 8).ok());
    REQUIRE(writer->Write("a", &value, 4, 4).ok());
    const absl::Status status = writer->Finish();
    REQUIRE(status.code() == absl::StatusCode::kFailedPrecondition);
    REQUIRE_THAT(std::string(status.message()), Contains("tensor a got 4 of its 8 bytes"));
  }
  REQUIRE(std::filesystem::is_empty(dir.path()));
  REQUIRE(
      !SafetensorsWriter::Create(path, {{"a", DType::kFloat32, {2}}, {"a", DType::kFloat32, {2}}})
           .ok());
}

TEST_CASE("A full disk stops a writer before it starts", "[tensor_file][safetensors]") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "x.safetensors";
  const std::vector<float> values(50'000);
  absl::Status status;
  {
    const testing::FileSizeLimit limit(8192);
    auto writer = SafetensorsWriter::Create(path, {{"a", DType::kFloat32, {50'000}}});
    status = writer.status();
    // File systems that cannot reserve space notice at the write.
    if (writer.ok()) status = (*writer)->Write("a", values.data(), 200'000);
  }
  REQUIRE(status.code() == absl::StatusCode::kResourceExhausted);
  REQUIRE_THAT(std::string(status.message()), Contains(path));
  REQUIRE(std::filesystem::is_empty(dir.path()));
}

TEST_CASE("A truncated safetensors file names tensor and bytes", "[tensor_file][safetensors]") {
  const std::string header = R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})";
  REQUIRE_THAT(Corruption(header, 12),
               Contains("tensor a needs bytes [63, 79)") && Contains("only 75 bytes"));
  REQUIRE_THAT(Corruption(header, 20), Contains("end at byte 79") && Contains("83 bytes"));
  REQUIRE_THAT(SafetensorsOpenError("abc", absl::StatusCode::kDataLoss),
               Contains("3 bytes are too few"));
  REQUIRE_THAT(SafetensorsOpenError(Raw(header, 0).substr(0, 30), absl::StatusCode::kDataLoss),
               Contains("header needs 63 bytes") && Contains("only 30 bytes"));
  REQUIRE_THAT(SafetensorsOpenError(std::string(64, '\x7f'), absl::StatusCode::kDataLoss),
               Contains("no safetensors file"));
  SafetensorsOpenError("", absl::StatusCode::kDataLoss);
}

TEST_CASE("Inconsistent safetensors headers are refused", "[tensor_file][safetensors]") {
  REQUIRE_THAT(Corruption("{\"a\":", 0), Contains("not JSON"));
  REQUIRE_THAT(Corruption(R"({"a":{"dtype":"F32","shape":[4]}})", 0), Contains("malformed"));
  REQUIRE_THAT(Corruption(R"({"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}})", 16),
               Contains("malformed"));
  REQUIRE_THAT(Corruption(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,16]}})", 16),
               Contains("tensor a F32 [3] needs 12 bytes, its offsets [0, 16) hold 16"));
  REQUIRE_THAT(Corruption(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[16,0]}})", 16),
               Contains("needs 16 bytes"));
  REQUIRE_THAT(
      Corruption(R"({"a":{"dtype":"F32","shape":[4611686018427387904,8],"data_offsets":[0,0]}})",
                 0),
      Contains("impossible shape"));
  REQUIRE_THAT(Corruption(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                          R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                          12),
               Contains("tensor b") && Contains("overlaps tensor a"));
  REQUIRE_THAT(Corruption(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})", 16),
               Contains("belong to no tensor"));
  REQUIRE_THAT(Corruption(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                          R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                          4),
               Contains("tensor a is declared twice"));
}

TEST_CASE("A dtype that is not supported is named with its tensor", "[tensor_file][safetensors]") {
  REQUIRE_THAT(
      SafetensorsOpenError(Raw(R"({"a":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}})", 4),
                           absl::StatusCode::kInvalidArgument),
      Contains("tensor a") && Contains("F8_E4M3"));
}

}  // namespace tandem
