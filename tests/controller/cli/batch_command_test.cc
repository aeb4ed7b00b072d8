#include "controller/cli/batch_command.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/controller/store/some_batch.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)

namespace {

using tandem::testing::RequireSaid;

std::string Shown(const BatchInspectOptions& options) {
  std::ostringstream out;
  const BatchInspectOutcome outcome = BatchInspectCommand(options, out);
  INFO(outcome.error.ToString());
  REQUIRE(outcome.error.ok());
  REQUIRE(outcome.exit_code == 0);
  return out.str();
}

// The exit code, after the message was seen to have `part`.
int Refused(const BatchInspectOptions& options, const std::string& part) {
  std::ostringstream out;
  const BatchInspectOutcome outcome = BatchInspectCommand(options, out);
  INFO(outcome.error.ToString());
  REQUIRE_FALSE(outcome.error.ok());
  REQUIRE(out.str().empty());
  REQUIRE(std::string(outcome.error.message()).find(part) != std::string::npos);
  return outcome.exit_code;
}

struct BatchCommandFixture {
  BatchCommandFixture() {
    std::vector<SavedSample> samples = testing::SomeSamples();
    samples[2].old_log_probs[3] += 0.5f;
    samples[1].is_weights[1] = NAN;
    testing::WriteBatch(path, testing::SomeInfo(), samples);
  }
  testing::TempDir dir;
  const std::string path = dir.path() / "step_12.batch";
};

}  // namespace

TEST_CASE("A batch is shown in words", "[ctl][batch]") {
  const BatchCommandFixture f;
  RequireSaid(
      Shown({.file = f.path}),
      {"step 12, sampled by weight version 7, saved at version 8",
       "format 1",
       "the run stopped here: step 12: 1 update in a row was skipped",
       "newest checkpoint before it: /nowhere/step_11",
       "4 samples in 2 groups; 12 prompt tokens, 11 response tokens, 8 of them trained (3 masked)",
       "finish reasons: length 2, stop 2",
       "off-support: 2 samples",
       "mini-batch 1 of pass 1: 2 samples, 3 trained tokens; its update failed",
       "groups with equal rewards: 0 of 2",
       "of 11 tokens: min 1, ",
       "exactly 1 in 10",
       "worst ratio 1.64872: sample 0xabcdef0123456789 response token 3 (token 6 of the sequence)",
       "log-prob of the rollout -3.5, of the trainer -3",
       "tokens 1 2 3 100 101 102 [103]",
       "no text: ",
       "--tokenizer",
       "is_weights has 1 nan and 0 infinite values; sample 0x3 response token 1: nan",
       "ref_log_probs",
       "sum_pi_squared",
       "advantages"});
}

TEST_CASE("A batch of several weight versions shows them, and what older ones sampled",
          "[ctl][batch][partial]") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "step_12.batch";
  std::vector<SavedSample> samples = testing::SomeSamples();
  samples[0].versions = {5, 5, 7, 7};
  samples[0].segments = {{3, 2, true, 5}, {5, 2, true, 7}};
  samples[0].old_log_probs[1] += 0.5f;
  testing::WriteBatch(path, testing::SomeInfo(), samples);
  RequireSaid(Shown({.file = path}),
              {"response tokens by weight version: v5:2 v7:9; 1 samples have several",
               "of 9 tokens: min 1, mean 1, max 1; exactly 1 in 9",
               "of 2 tokens of older weights: min 1, mean 1.32436, max 1.64872; worst 1.64872: "
               "sample 0x2 response token 1, weight version 5"});
  const auto json = nlohmann::json::parse(Shown({.file = path, .json = true}));
  REQUIRE(json.at("version_tokens").at("5") == 2);
  REQUIRE(json.at("mixed_samples") == 1);
  REQUIRE(json.at("stale_ratio").at("tokens") == 2);
  REQUIRE(json.at("ratio").at("exactly_one") == 9);
  const BatchCommandFixture plain;
  REQUIRE(Shown({.file = plain.path}).find("tokens by weight version") == std::string::npos);
}

TEST_CASE("A batch is JSON for machines", "[ctl][batch]") {
  const BatchCommandFixture f;
  const auto json = nlohmann::json::parse(Shown({.file = f.path, .json = true}));
  REQUIRE(json.at("step") == 12);
  REQUIRE(json.at("failed_mini_batch") == 1);
  REQUIRE(json.at("trained_tokens") == 8);
  REQUIRE(json.at("finish_reasons").at("stop") == 2);
  REQUIRE(json.at("fields").at("response_tokens").at("mean") == 2.75);
  REQUIRE(json.at("fields").at("is_weights").at("nan") == 1);
  REQUIRE(json.at("fields").at("is_weights").at("not_finite")[0].at("value") == "nan");
  REQUIRE(json.at("groups").size() == 2);
  REQUIRE(json.at("ratio").at("worst").at("sample") == "0xabcdef0123456789");
  REQUIRE(json.at("ratio").at("worst").at("token") == 103);
  REQUIRE_FALSE(json.at("ratio").at("worst").contains("text"));
  REQUIRE(json.at("metrics").at("actor/grad_norm") == "nan");
  REQUIRE(json.at("config") == "rollout:\n  n: 2\n");
}

TEST_CASE("With a tokenizer the worst token has its text", "[ctl][batch]") {
  const BatchCommandFixture f;
  std::ofstream(f.dir.path() / "tokenizer.json") << R"({"model": {"type": "BPE", "merges": ["a b"],
      "vocab": {"a": 1, "b": 2, "c": 3, "d": 100, "e": 101, "f": 102, "\"": 103, "ab": 104}},
      "decoder": {"type": "ByteLevel"}, "pre_tokenizer": {"type": "ByteLevel",
      "add_prefix_space": false}})";
  for (const std::string& path :
       {f.dir.path().string(), f.dir.path().string() + "/tokenizer.json"}) {
    RequireSaid(Shown({.file = f.path, .tokenizer = path}), {"text \"abcdef\" [\"\\\"\"] \"\""});
  }
  const auto json =
      nlohmann::json::parse(Shown({.file = f.path, .tokenizer = f.dir.path(), .json = true}));
  REQUIRE(json.at("ratio").at("worst").at("text") == "\"");
  // The model that the batch names does without the flag.
  SavedBatchInfo info = testing::SomeInfo();
  info.model_path = f.dir.path();
  testing::WriteBatch(f.path, info, testing::SomeSamples());
  RequireSaid(Shown({.file = f.path}), {"text \"abc\" [\""});
}

TEST_CASE("A batch without the trainer's log-probs says what saves them", "[ctl][batch]") {
  const BatchCommandFixture f;
  SavedSample sample = testing::SomeSample(2, 0, 3);
  sample.old_log_probs.clear();
  testing::WriteBatch(f.path, testing::SomeInfo(), {sample});
  RequireSaid(Shown({.file = f.path}),
              {"no ratio", "actor.old_log_prob=recompute", "all values are finite"});
  REQUIRE(nlohmann::json::parse(Shown({.file = f.path, .json = true})).at("ratio").is_null());
}

TEST_CASE("What is not a batch is refused with the exit codes of a run", "[ctl][batch]") {
  const BatchCommandFixture f;
  REQUIRE(Refused({.file = f.path + "x"}, "step_12.batchx") == 66);
  REQUIRE(Refused({.file = f.dir.path()}, "RUN_DIR/batches") == 65);
  REQUIRE(Refused({.file = f.path, .tokenizer = "/nowhere"}, "--tokenizer: ") == 66);
  std::filesystem::resize_file(f.path, std::filesystem::file_size(f.path) - 1);
  REQUIRE(Refused({.file = f.path}, "was cut short") == 65);
  std::ofstream(f.path, std::ios::trunc) << "no batch";
  REQUIRE(Refused({.file = f.path}, "is not a saved batch") == 65);
  std::ofstream(f.path, std::ios::trunc | std::ios::binary)
      << std::string("TNDBATCH\x07\0\0\0", 12) << std::string(80, '\0');
  REQUIRE(Refused({.file = f.path}, "has version 7 of the format") == 65);
}
