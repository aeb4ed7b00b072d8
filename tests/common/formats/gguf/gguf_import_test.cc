#include "common/formats/gguf/gguf_import.h"

#include <filesystem>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "common/formats/files.h"
#include "common/formats/hf_checkpoint.h"
#include "tests/common/formats/file_size_limit.h"
#include "tests/common/formats/gguf/gguf_builder.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

using Catch::Matchers::Contains;
using PlainJson = nlohmann::json;
using testing::GgufBuilder;
using testing::SmallLlama;
namespace fs = std::filesystem;

absl::Status Import(const GgufBuilder& builder, const testing::TempDir& dir) {
  REQUIRE(WriteFileAtomically(dir.path() / "x.gguf", builder.Build()).ok());
  return ImportGguf(dir.path() / "x.gguf", dir.path() / "out");
}

std::string ImportError(const GgufBuilder& builder, absl::StatusCode code) {
  const testing::TempDir dir;
  const absl::Status status = Import(builder, dir);
  REQUIRE(status.code() == code);
  REQUIRE(!fs::exists(dir.path() / "out"));
  REQUIRE(!fs::exists(PartialPath(dir.path() / "out")));
  return std::string(status.message());
}

PlainJson ReadJson(const fs::path& path) { return PlainJson::parse(ReadWholeFile(path).value()); }

}  // namespace

TEST_CASE("An imported llama has the spec of its metadata", "[tensor_file][import]") {
  const testing::TempDir dir;
  REQUIRE(Import(SmallLlama(), dir).ok());
  const ModelSpec spec = LoadModelSpec(dir.path() / "out").value();
  REQUIRE(spec.model_type == "llama");
  REQUIRE(spec.vocab_size == 8);
  REQUIRE(spec.head_dim == 4);
  REQUIRE(spec.num_kv_heads == 1);
  REQUIRE(spec.rope_theta == 5000.0);
  REQUIRE(spec.rms_norm_eps == 1e-5f);
  REQUIRE(spec.tie_word_embeddings);
  REQUIRE(spec.eos_token_ids == std::vector<int32_t>{0});
  REQUIRE(HfCheckpoint::Open(dir.path() / "out", spec).ok());
}

TEST_CASE("The rotary order of q and k rows is undone, v is left alone", "[tensor_file][import]") {
  const testing::TempDir dir;
  REQUIRE(Import(SmallLlama(), dir).ok());
  const ModelSpec spec = LoadModelSpec(dir.path() / "out").value();
  const auto checkpoint = HfCheckpoint::Open(dir.path() / "out", spec).value();
  const auto first_column = [&](const std::string& name, int64_t rows) {
    std::vector<float> values(static_cast<size_t>(rows * 8));
    REQUIRE(checkpoint
                ->ReadRows("model.layers.0.self_attn." + name + ".weight", 0, rows, DType::kFloat32,
                           values.data())
                .ok());
    std::vector<int> source_rows;
    for (int64_t row = 0; row < rows; ++row) {
      source_rows.push_back(static_cast<int>(values[static_cast<size_t>(row * 8)]) / 8);
    }
    return source_rows;
  };
  REQUIRE(first_column("q_proj", 8) == std::vector<int>{0, 2, 1, 3, 4, 6, 5, 7});
  REQUIRE(first_column("k_proj", 4) == std::vector<int>{0, 2, 1, 3});
  REQUIRE(first_column("v_proj", 4) == std::vector<int>{0, 1, 2, 3});
}

TEST_CASE("The tokenizer becomes a byte-level BPE tokenizer.json", "[tensor_file][import]") {
  const testing::TempDir dir;
  REQUIRE(Import(SmallLlama(), dir).ok());
  const PlainJson tokenizer = ReadJson(dir.path() / "out" / "tokenizer.json");
  const PlainJson& model = tokenizer["model"];
  REQUIRE(model["type"] == "BPE");
  REQUIRE(model["vocab"].size() == 7);
  REQUIRE(model["vocab"]["ab"] == 4);
  REQUIRE(model["merges"] == PlainJson::array({PlainJson::array({"a", "b"})}));
  REQUIRE(tokenizer["added_tokens"].size() == 2);
  REQUIRE(tokenizer["added_tokens"][0]["special"] == true);
  REQUIRE(tokenizer["added_tokens"][1]["content"] == "<user>");
  REQUIRE(tokenizer["added_tokens"][1]["special"] == false);
  REQUIRE(tokenizer["pre_tokenizer"]["pretokenizers"][0] ==
          PlainJson{{"type", "Digits"}, {"individual_digits", true}});
  REQUIRE(tokenizer["pre_tokenizer"]["pretokenizers"][1]["use_regex"] == true);
  REQUIRE(tokenizer["decoder"]["type"] == "ByteLevel");
  REQUIRE(tokenizer["post_processor"].is_null());
  const PlainJson config = ReadJson(dir.path() / "out" / "tokenizer_config.json");
  REQUIRE(config["chat_template"] == "{{ messages }}");
  REQUIRE(config["eos_token"] == "<|end|>");
  REQUIRE(!config.contains("bos_token"));
}

TEST_CASE("Each known pre-tokenizer gets its splitting rule", "[tensor_file][import]") {
  const auto tokenizer_of = [](const std::string& pre) {
    const testing::TempDir dir;
    GgufBuilder builder = SmallLlama();
    builder.Text("tokenizer.ggml.pre", pre).Integer("tokenizer.ggml.bos_token_id", 0);
    REQUIRE(Import(builder, dir).ok());
    return ReadJson(dir.path() / "out" / "tokenizer.json");
  };
  REQUIRE(tokenizer_of("gpt-2")["pre_tokenizer"]["type"] == "ByteLevel");
  const PlainJson llama = tokenizer_of("llama-bpe");
  const std::string regex = llama["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"];
  REQUIRE_THAT(regex, Contains("\\p{N}{1,3}"));
  REQUIRE(llama["pre_tokenizer"]["pretokenizers"][1]["use_regex"] == false);
  REQUIRE(llama["model"]["ignore_merges"] == true);
  REQUIRE(llama["post_processor"]["processors"][1]["single"][0]["SpecialToken"]["id"] == "<|end|>");
  const PlainJson qwen = tokenizer_of("qwen2");
  REQUIRE(qwen["normalizer"]["type"] == "NFC");
  REQUIRE(qwen["post_processor"].is_null());
}

TEST_CASE("Unsupported GGUF content is refused by name", "[tensor_file][import]") {
  const absl::StatusCode code = absl::StatusCode::kUnimplemented;
  GgufBuilder builder = SmallLlama();
  REQUIRE_THAT(ImportError(builder.Text("tokenizer.ggml.pre", "tekken"), code), Contains("tekken"));
  builder = SmallLlama();
  REQUIRE_THAT(ImportError(builder.Text("tokenizer.ggml.model", "llama"), code),
               Contains("tokenizer.ggml.model llama"));
  builder = SmallLlama();
  REQUIRE_THAT(ImportError(builder.Text("general.architecture", "gemma"), code), Contains("gemma"));
  builder = SmallLlama();
  REQUIRE_THAT(ImportError(builder.Integer("llama.expert_count", 8), code),
               Contains("llama.expert_count"));
  builder = SmallLlama();
  REQUIRE_THAT(ImportError(builder.Text("llama.rope.scaling.type", "yarn"), code),
               Contains("yarn"));
  builder = SmallLlama();
  REQUIRE_THAT(ImportError(builder.Floats("rope_freqs.weight", {2}, {1, 8}), code),
               Contains("rope_freqs.weight"));
  builder = SmallLlama();
  REQUIRE_THAT(ImportError(builder.Floats("blk.0.attn_q.bias", {8}, std::vector<float>(8)), code),
               Contains("blk.0.attn_q.bias"));
  builder = SmallLlama();
  REQUIRE_THAT(ImportError(builder.Tensor("output.weight", {8, 8}, 10, std::string(64, 'x')), code),
               Contains("output.weight") && Contains("Q2_K"));
}

TEST_CASE("Malformed GGUF content is refused with its key or tensor", "[tensor_file][import]") {
  const absl::StatusCode code = absl::StatusCode::kInvalidArgument;
  GgufBuilder builder = SmallLlama();
  REQUIRE_THAT(ImportError(builder.Texts("tokenizer.ggml.merges", {"ab"}), code),
               Contains("\"ab\" is not two tokens"));
  builder = SmallLlama();
  REQUIRE_THAT(ImportError(builder.Integer("tokenizer.ggml.eos_token_id", 8), code),
               Contains("eos_token_id is 8"));
  builder = SmallLlama();
  REQUIRE_THAT(ImportError(builder.Integers("tokenizer.ggml.token_type", {1}), code),
               Contains("8 tokens but 1 token types"));
  builder = SmallLlama();
  REQUIRE_THAT(ImportError(builder.Texts("tokenizer.ggml.tokens",
                                         {"\xff", "b", "c", "d", "e", "f", "g", "h"}),
                           code),
               Contains("not UTF-8"));
  builder = SmallLlama();
  REQUIRE_THAT(ImportError(builder.Integer("llama.feed_forward_length", 7), code),
               Contains("blk.0.ffn_gate.weight") && Contains("[6, 8]") && Contains("[7, 8]"));
  builder = SmallLlama();
  REQUIRE_THAT(ImportError(builder.Integer("llama.block_count", 2), code),
               Contains("blk.1.attn_norm.weight"));
  REQUIRE_THAT(ImportError(GgufBuilder(), absl::StatusCode::kNotFound),
               Contains("general.architecture"));
}

TEST_CASE("An import never overwrites a folder, and a full disk leaves nothing",
          "[tensor_file][import]") {
  const testing::TempDir dir;
  REQUIRE(Import(SmallLlama(), dir).ok());
  REQUIRE(Import(SmallLlama(), dir).code() == absl::StatusCode::kAlreadyExists);
  fs::remove_all(dir.path() / "out");
  absl::Status status;
  {
    const testing::FileSizeLimit limit(1024);
    status = ImportGguf(dir.path() / "x.gguf", dir.path() / "out");
  }
  REQUIRE(status.code() == absl::StatusCode::kResourceExhausted);
  REQUIRE(!fs::exists(dir.path() / "out"));
  REQUIRE(!fs::exists(PartialPath(dir.path() / "out")));
  REQUIRE(ImportGguf(dir.path() / "none.gguf", dir.path() / "out").code() ==
          absl::StatusCode::kNotFound);
}

}  // namespace tandem
