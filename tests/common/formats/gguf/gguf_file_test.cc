#include "common/formats/gguf/gguf_file.h"

#include <fstream>

#include <catch2/catch.hpp>

#include "tests/common/formats/gguf/gguf_builder.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

using Catch::Matchers::Contains;
using testing::GgufBuilder;

absl::StatusOr<std::unique_ptr<GgufFile>> Open(const std::string& content) {
  const testing::TempDir dir;
  const std::string path = dir.path() / "x.gguf";
  std::ofstream(path, std::ios::binary) << content;
  return GgufFile::Open(path);
}

std::string GgufOpenError(const std::string& content, absl::StatusCode code) {
  const absl::Status status = Open(content).status();
  REQUIRE(status.code() == code);
  return std::string(status.message());
}

std::vector<float> Dequantized(uint32_t type,
                               const std::vector<int64_t>& shape,
                               const std::string& data) {
  const auto file = Open(GgufBuilder().Tensor("w", shape, type, data).Build()).value();
  return file->Dequantize(*file->Find("w")).value();
}

constexpr char kHalf[] = {0x00, 0x38};  // 0.5 as fp16
constexpr char kTwo[] = {0x00, 0x40};   // 2.0 as fp16

// Byte i holds i in its low and 15 - i in its high nibble.
std::string Nibbles() {
  std::string bytes;
  for (int i = 0; i < 16; ++i) bytes.push_back(static_cast<char>(i | ((15 - i) << 4)));
  return bytes;
}

}  // namespace

TEST_CASE("GGUF metadata and tensors are read", "[tensor_file][gguf]") {
  for (const uint32_t version : {2u, 3u}) {
    GgufBuilder builder = testing::SmallLlama();
    builder.Flag("flag", true);
    builder.set_version(version);
    const auto file = Open(builder.Build()).value();
    REQUIRE(file->Text("general.architecture").value() == "llama");
    REQUIRE(file->Integer("llama.block_count").value() == 1);
    REQUIRE(file->Number("llama.rope.freq_base").value() == 5000.0);
    REQUIRE(file->Number("llama.block_count").value() == 1.0);
    REQUIRE(file->Flag("flag").value());
    REQUIRE(file->Texts("tokenizer.ggml.merges").value() == std::vector<std::string>{"a b"});
    REQUIRE(file->Integers("tokenizer.ggml.token_type").value().size() == 8);
    REQUIRE(file->Text("nothing").status().code() == absl::StatusCode::kNotFound);
    REQUIRE_THAT(std::string(file->Integer("general.architecture").status().message()),
                 Contains("general.architecture is not an integer"));
    REQUIRE(file->tensors().size() == 11);
    const GgufTensor& gate = *file->Find("blk.0.ffn_gate.weight");
    REQUIRE(gate.shape == std::vector<int64_t>{6, 8});
    REQUIRE(file->Dequantize(gate).value()[47] == 47.0f);
    REQUIRE(file->Find("nothing") == nullptr);
  }
}

TEST_CASE("Float types are read exactly", "[tensor_file][gguf]") {
  REQUIRE(Dequantized(1, {2}, std::string(kHalf, 2) + std::string(kTwo, 2)) ==
          std::vector<float>{0.5f, 2.0f});
  REQUIRE(Dequantized(30, {2}, std::string("\x80\x3f\x00\xc0", 4)) ==
          std::vector<float>{1.0f, -2.0f});
}

TEST_CASE("Quantised blocks follow their formulas", "[tensor_file][gguf]") {
  const std::vector<float> q40 = Dequantized(2, {1, 32}, std::string(kHalf, 2) + Nibbles());
  const std::vector<float> q41 =
      Dequantized(3, {32}, std::string(kHalf, 2) + std::string(kTwo, 2) + Nibbles());
  std::string signed_bytes;
  for (int i = 0; i < 32; ++i) signed_bytes.push_back(static_cast<char>(i * 8 - 128));
  const std::vector<float> q80 = Dequantized(8, {32}, std::string(kHalf, 2) + signed_bytes);
  for (int i = 0; i < 16; ++i) {
    const auto low = static_cast<size_t>(i);
    REQUIRE(q40[low] == 0.5f * static_cast<float>(i - 8));
    REQUIRE(q40[low + 16] == 0.5f * static_cast<float>(7 - i));
    REQUIRE(q41[low] == 0.5f * static_cast<float>(i) + 2.0f);
    REQUIRE(q41[low + 16] == 0.5f * static_cast<float>(15 - i) + 2.0f);
    REQUIRE(q80[low] == 0.5f * static_cast<float>(i * 8 - 128));
  }
}

TEST_CASE("A tensor type that cannot be read is named when it is read", "[tensor_file][gguf]") {
  const auto file =
      Open(GgufBuilder().Tensor("blk.0.w", {256}, 12, std::string(144, 'x')).Build()).value();
  const absl::Status status = file->Dequantize(*file->Find("blk.0.w")).status();
  REQUIRE(status.code() == absl::StatusCode::kUnimplemented);
  REQUIRE_THAT(std::string(status.message()),
               Contains("blk.0.w") && Contains("Q4_K") && Contains("Q8_0"));
  REQUIRE(GgufTypeName(777) == "number 777");
}

TEST_CASE("A file that is not GGUF or of another version is refused", "[tensor_file][gguf]") {
  REQUIRE_THAT(GgufOpenError("PK\x03\x04 something", absl::StatusCode::kInvalidArgument),
               Contains("not a GGUF file"));
  GgufBuilder builder;
  builder.set_version(1);
  REQUIRE_THAT(GgufOpenError(builder.Build(), absl::StatusCode::kInvalidArgument),
               Contains("GGUF version 1"));
}

TEST_CASE("A GGUF cut anywhere is refused, never read past its end", "[tensor_file][gguf]") {
  const std::string whole = testing::SmallLlama().Build();
  REQUIRE(Open(whole).ok());
  // The last tensor holds 32 bytes of the final 32-byte unit.
  for (size_t size = 4; size < whole.size(); size += 7) {
    const absl::Status status = Open(whole.substr(0, size)).status();
    REQUIRE(!status.ok());
  }
  REQUIRE_THAT(GgufOpenError(whole.substr(0, whole.size() - 1), absl::StatusCode::kDataLoss),
               Contains("tensor output_norm.weight") && Contains("needs 32 bytes"));
}

TEST_CASE("Impossible tensor entries are refused", "[tensor_file][gguf]") {
  REQUIRE_THAT(
      GgufOpenError(GgufBuilder().Tensor("w", {0}, 0, "").Build(), absl::StatusCode::kDataLoss),
      Contains("impossible dimension"));
  REQUIRE_THAT(GgufOpenError(GgufBuilder().Tensor("w", {INT64_MAX, 4}, 0, "").Build(),
                             absl::StatusCode::kDataLoss),
               Contains("impossible dimension"));
  REQUIRE_THAT(GgufOpenError(GgufBuilder().Tensor("w", {1, 1, 1, 1, 1}, 0, "xxxx").Build(),
                             absl::StatusCode::kDataLoss),
               Contains("5 dimensions"));
  REQUIRE_THAT(GgufOpenError(GgufBuilder().Tensor("w", {33}, 8, std::string(68, 'x')).Build(),
                             absl::StatusCode::kDataLoss),
               Contains("not a multiple of 32"));
  REQUIRE_THAT(
      GgufOpenError(GgufBuilder().Tensor("w", {1}, 0, "xxxx").Tensor("w", {1}, 0, "xxxx").Build(),
                    absl::StatusCode::kDataLoss),
      Contains("there twice"));
  // Sizes near the end of the number range must not wrap around.
  REQUIRE(!Open(GgufBuilder().Tensor("w", {INT64_MAX}, 0, "xxxx").Build()).ok());
}

}  // namespace tandem
