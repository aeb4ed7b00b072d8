#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "common/formats/hf_checkpoint.h"
#include "tests/common/formats/test_checkpoint.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Says;

// A model of 16 positions.
struct Model {
  Model() {
    spec.max_position = 16;
    std::ofstream(dir.path() / "config.json") << ModelConfigJson(spec);
    testing::WriteStored(weights(), testing::SmallTensors(spec));
  }
  std::string weights() const { return dir.path() / "model.safetensors"; }
  absl::Status Check(int64_t tokens = 16) const { return CheckModel(dir.path(), tokens).status(); }

  testing::TempDir dir;
  ModelSpec spec = testing::StoredSpec();
};

}  // namespace

TEST_CASE("A whole model passes; sequences beyond its positions do not", "[check_model]") {
  const Model model;
  INFO(model.Check().ToString());
  REQUIRE(model.Check().ok());
  const absl::Status longer = model.Check(17);
  REQUIRE(absl::IsInvalidArgument(longer));
  REQUIRE(Says(longer, "rollout.max_model_len is 17"));
  REQUIRE(Says(longer, "the model has 16 positions"));
}

TEST_CASE("Every way in which weight files can be broken is an error of the input",
          "[check_model]") {
  const Model model;
  std::filesystem::resize_file(model.weights(), 100);
  REQUIRE(absl::IsDataLoss(model.Check()));
  std::filesystem::resize_file(model.weights(), 0);
  REQUIRE(absl::IsDataLoss(model.Check()));
  std::ofstream(model.weights()) << std::string(1000, 'x');
  REQUIRE(absl::IsDataLoss(model.Check()));
  testing::WriteStored(model.weights(), testing::SmallTensors(testing::StoredSpec(false)));
  REQUIRE(absl::IsInvalidArgument(model.Check()));
  std::filesystem::remove(model.weights());
  REQUIRE(absl::IsNotFound(model.Check()));
  std::filesystem::remove(model.dir.path() / "config.json");
  REQUIRE(absl::IsNotFound(model.Check()));
}

TEST_CASE("A tokenizer with more ids than embedding rows is refused", "[check_model]") {
  const Model model;
  REQUIRE(CheckVocabulary("m", model.spec, model.spec.vocab_size).ok());
  const absl::Status refused = CheckVocabulary("m", model.spec, model.spec.vocab_size + 1);
  REQUIRE(absl::IsInvalidArgument(refused));
  REQUIRE(Says(refused, "belong together"));
}

}  // namespace tandem
