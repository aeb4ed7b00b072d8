#include "controller/view/token_view.h"

#include <cmath>
#include <filesystem>
#include <string>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "controller/store/batch_file.h"
#include "tests/controller/store/some_batch.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"
#include "tests/support/tiny_model.h"

namespace tandem {
namespace {

using testing::Says;

// A run directory with the tokens of step 12, of a model with its tokenizer.
class KeptTokens {
 public:
  KeptTokens() {
    REQUIRE(testing::WriteTinyModel(model()).ok());
    std::filesystem::create_directories(run_dir() + "/samples");
    const auto writer = BatchWriter::Create(run_dir() + "/samples/step_000012.samples").value();
    REQUIRE(writer->Add(testing::SomeSample(4, 0, 2)).ok());
    REQUIRE(writer->Add(Text()).ok());
    SavedBatchInfo info = testing::SomeInfo();
    info.model_path = model();
    REQUIRE(writer->Commit(info).ok());
  }

  std::string model() const { return dir_.path() / "model"; }
  std::string run_dir() const { return dir_.path() / "run"; }

  // Prompt "a", response "é!" as three bytes, which are three tokens.
  static SavedSample Text() {
    SavedSample sample = testing::SomeSample(9, 0, 3);
    sample.tokens = {'a', 0xc3, 0xa9, '!'};
    sample.prompt_tokens = 1;
    sample.segments = {{.begin = 1, .length = 3, .trained = true, .weight_version = 7}};
    return sample;
  }

 private:
  testing::TempDir dir_;
};

}  // namespace

TEST_CASE("Tokens come with their texts and what is known of each", "[view]") {
  const KeptTokens kept;
  TokenReader reader;
  const TokenWindow window = reader.Read(kept.run_dir(), 12, 9, 0, 512).value();
  REQUIRE(window.tokens == 4);
  REQUIRE(window.prompt_tokens == 1);
  REQUIRE(window.ids == std::vector<int32_t>{'a', 0xc3, 0xa9, '!'});
  REQUIRE(window.note == "");
  REQUIRE(fmt::format("{}", fmt::join(window.texts, "|")) == "a||\u00e9|!");
  const std::vector<double>& log_probs = window.values.at("log_probs");
  REQUIRE(std::isnan(log_probs[0]));  // the prompt's
  REQUIRE(log_probs[1] == -0.5);
  REQUIRE(log_probs[3] == -2.5);
  REQUIRE(window.values.at("versions")[2] == 7);
  REQUIRE(window.values.at("mask")[1] == 0);
  REQUIRE_FALSE(window.values.contains("training_log_probs"));  // the step has none
}

TEST_CASE("A window is a part of a sample, and its texts are those of the whole", "[view]") {
  const KeptTokens kept;
  TokenReader reader;
  const TokenWindow window = reader.Read(kept.run_dir(), 12, 9, 2, 1).value();
  REQUIRE(window.first == 2);
  REQUIRE(window.texts == std::vector<std::string>{"\u00e9"});
  REQUIRE(window.values.at("log_probs") == std::vector<double>{-1.5});
  REQUIRE(reader.Read(kept.run_dir(), 12, 9, 4, 512)->ids.empty());
  REQUIRE(reader.Read(kept.run_dir(), 12, 9, 1'000'000, 512)->first == 4);
  REQUIRE(reader.Read(kept.run_dir(), 12, 9, 0, 0)->ids.empty());
}

TEST_CASE("A model that is gone leaves the numbers", "[view]") {
  const KeptTokens kept;
  std::filesystem::remove_all(kept.model());
  TokenReader reader;
  const TokenWindow window = reader.Read(kept.run_dir(), 12, 9, 0, 512).value();
  REQUIRE(window.texts.empty());
  REQUIRE(testing::Has(window.note, kept.model()));
  REQUIRE(window.ids.size() == 4);
}

TEST_CASE("What is not kept is named", "[view]") {
  const KeptTokens kept;
  TokenReader reader;
  const absl::Status no_step = reader.Read(kept.run_dir(), 11, 9, 0, 512).status();
  REQUIRE(absl::IsNotFound(no_step));
  REQUIRE(Says(no_step, "trainer.sample_files_to_keep"));
  const absl::Status no_sample = reader.Read(kept.run_dir(), 12, 5, 0, 512).status();
  REQUIRE(absl::IsNotFound(no_sample));
  REQUIRE(Says(no_sample, "no sample 5"));
}

}  // namespace tandem
