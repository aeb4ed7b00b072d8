#include <cstring>
#include <filesystem>

#include <catch2/catch.hpp>

#include "common/formats/files.h"
#include "common/formats/hf_checkpoint.h"
#include "tests/common/formats/test_checkpoint.h"
#include "tests/support/own_progress.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

using Catch::Matchers::Contains;
using testing::SmallTensors;
using testing::StoredSpec;
using testing::StoredTensors;

constexpr char kHead[] = "lm_head.weight";
constexpr char kUp[] = "model.layers.1.mlp.up_proj.weight";

std::string CheckpointOpenError(const ModelSpec& spec,
                                const StoredTensors& tensors,
                                absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const testing::TempDir dir;
  testing::WriteStored(dir.path() / "model.safetensors", tensors);
  const absl::Status status = HfCheckpoint::Open(dir.path(), spec).status();
  REQUIRE(status.code() == code);
  return std::string(status.message());
}

// Two shards and their index; `second` is the name the index gives the second one.
void WriteSharded(const std::string& dir, const StoredTensors& tensors, const std::string& second) {
  StoredTensors parts[2];
  std::string map;
  for (const auto& [name, tensor] : tensors) {
    const size_t part = name.find("layers.1") != std::string::npos ? 1 : 0;
    parts[part][name] = tensor;
    map += (map.empty() ? "" : ",") + ("\"" + name + "\":\"") +
           (part == 0 ? "model-00001-of-00002.safetensors" : second) + "\"";
  }
  testing::WriteStored(dir + "/model-00001-of-00002.safetensors", parts[0]);
  testing::WriteStored(dir + "/model-00002-of-00002.safetensors", parts[1]);
  REQUIRE(WriteFileAtomically(dir + "/model.safetensors.index.json",
                              "{\"metadata\":{},\"weight_map\":{" + map + "}}")
              .ok());
}

}  // namespace

TEST_CASE("A single-file checkpoint opens and rows convert", "[tensor_file][checkpoint]") {
  const testing::TempDir dir;
  const ModelSpec spec = StoredSpec();
  testing::WriteStored(dir.path() / "model.safetensors", SmallTensors(spec));
  const auto checkpoint = HfCheckpoint::Open(dir.path(), spec).value();
  REQUIRE(checkpoint->tensors().size() == HfTensors(spec).size());
  const std::string name = "model.embed_tokens.weight";
  std::vector<float> rows(16);
  REQUIRE(checkpoint->ReadRows(name, 3, 2, DType::kFloat32, rows.data()).ok());
  REQUIRE(rows[0] == 3.0f);
  REQUIRE(rows[15] == 4.875f);
  std::vector<Bf16> narrow(8);
  REQUIRE(checkpoint->ReadRows(name, 11, 1, DType::kBFloat16, narrow.data()).ok());
  REQUIRE(FromBf16(narrow[0]) == 11.0f);
  // Each range is progress of a worker that loads the model.
  const int64_t moves = testing::OwnProgress().moves;
  REQUIRE(checkpoint->ReadRows(name, 0, 2, DType::kFloat32, rows.data()).ok());
  REQUIRE(testing::OwnProgress().moves > moves);
  REQUIRE(checkpoint->ReadRows(name, 12, 0, DType::kFloat32, nullptr).ok());
  REQUIRE(!checkpoint->ReadRows(name, 11, 2, DType::kFloat32, rows.data()).ok());
  REQUIRE(!checkpoint->ReadRows(name, -1, 1, DType::kFloat32, rows.data()).ok());
  REQUIRE(!checkpoint->ReadRows(name, 0, 1, DType::kInt64, rows.data()).ok());
  REQUIRE(checkpoint->View(kHead).status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("A sharded checkpoint opens through its index", "[tensor_file][checkpoint]") {
  const testing::TempDir dir;
  const ModelSpec spec = StoredSpec(false);
  WriteSharded(dir.path(), SmallTensors(spec), "model-00002-of-00002.safetensors");
  const auto checkpoint = HfCheckpoint::Open(dir.path(), spec).value();
  std::vector<float> row(8);
  REQUIRE(checkpoint->ReadRows(kUp, 0, 1, DType::kFloat32, row.data()).ok());
  REQUIRE(row[1] - row[0] == 0.125f);
}

TEST_CASE("An index that names a missing file is refused with both names",
          "[tensor_file][checkpoint]") {
  const testing::TempDir dir;
  const ModelSpec spec = StoredSpec();
  WriteSharded(dir.path(), SmallTensors(spec), "model-00003.safetensors");
  const absl::Status status = HfCheckpoint::Open(dir.path(), spec).status();
  REQUIRE(status.code() == absl::StatusCode::kNotFound);
  REQUIRE_THAT(std::string(status.message()),
               Contains("model.safetensors.index.json") && Contains("model-00003.safetensors"));
}

TEST_CASE("An index that points outside or lies is refused", "[tensor_file][checkpoint]") {
  const testing::TempDir dir;
  const ModelSpec spec = StoredSpec();
  WriteSharded(dir.path(), SmallTensors(spec), "../model.safetensors");
  REQUIRE_THAT(std::string(HfCheckpoint::Open(dir.path(), spec).status().message()),
               Contains("expected a file name"));
  WriteSharded(dir.path(), SmallTensors(spec), "model-00001-of-00002.safetensors");
  REQUIRE(HfCheckpoint::Open(dir.path(), spec).status().code() == absl::StatusCode::kDataLoss);
  REQUIRE(WriteFileAtomically(dir.path() / "model.safetensors.index.json", "[]").ok());
  REQUIRE(HfCheckpoint::Open(dir.path(), spec).status().code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("A folder without weights says what it lacks", "[tensor_file][checkpoint]") {
  const testing::TempDir dir;
  absl::Status status = HfCheckpoint::Open(dir.path(), StoredSpec()).status();
  REQUIRE(status.code() == absl::StatusCode::kNotFound);
  REQUIRE_THAT(std::string(status.message()), Contains("model.safetensors"));
  REQUIRE(WriteFileAtomically(dir.path() / "pytorch_model.bin", "x").ok());
  status = HfCheckpoint::Open(dir.path(), StoredSpec()).status();
  REQUIRE_THAT(std::string(status.message()), Contains("pytorch_model.bin"));
}

TEST_CASE("Missing, misshapen and unexpected tensors are named", "[tensor_file][checkpoint]") {
  const ModelSpec spec = StoredSpec();
  StoredTensors tensors = SmallTensors(spec);
  tensors.erase(kUp);
  REQUIRE_THAT(CheckpointOpenError(spec, tensors), Contains(kUp) && Contains("[10, 8]"));
  tensors = SmallTensors(spec);
  tensors[kUp].shape = {8, 10};
  REQUIRE_THAT(CheckpointOpenError(spec, tensors),
               Contains(kUp) && Contains("[8, 10]") && Contains("[10, 8]"));
  tensors[kUp] = {DType::kInt32, {10, 8}, tensors[kUp].bytes};
  REQUIRE_THAT(CheckpointOpenError(spec, tensors), Contains(kUp) && Contains("I32"));
  tensors = SmallTensors(spec);
  tensors["model.layers.0.extra.weight"] = {DType::kUInt8, {1}, "x"};
  REQUIRE_THAT(CheckpointOpenError(spec, tensors), Contains("model.layers.0.extra.weight"));
}

TEST_CASE("Harmless buffers are ignored", "[tensor_file][checkpoint]") {
  const testing::TempDir dir;
  StoredTensors tensors = SmallTensors(StoredSpec());
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {DType::kUInt8, {1}, "x"};
  testing::WriteStored(dir.path() / "model.safetensors", tensors);
  REQUIRE(HfCheckpoint::Open(dir.path(), StoredSpec()).ok());
}

TEST_CASE("A head in a tied checkpoint must equal the embedding", "[tensor_file][checkpoint]") {
  const testing::TempDir dir;
  StoredTensors tensors = SmallTensors(StoredSpec());
  tensors[kHead] = tensors["model.embed_tokens.weight"];
  testing::WriteStored(dir.path() / "model.safetensors", tensors);
  REQUIRE(HfCheckpoint::Open(dir.path(), StoredSpec()).ok());
  tensors[kHead].bytes.back() = '\x01';
  REQUIRE_THAT(CheckpointOpenError(StoredSpec(), tensors),
               Contains("lm_head.weight") && Contains("tie_word_embeddings"));
}

TEST_CASE("An untied checkpoint without head is refused", "[tensor_file][checkpoint]") {
  REQUIRE_THAT(CheckpointOpenError(StoredSpec(false), SmallTensors(StoredSpec(true))),
               Contains("lm_head.weight") && Contains("tie_word_embeddings"));
}

}  // namespace tandem
