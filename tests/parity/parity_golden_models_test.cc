// Parity on the golden models: tests/golden/models, and the external set's where there is one.
#include <catch2/catch.hpp>

#include "parity/parity.h"
#include "tests/support/golden.h"

namespace tandem::testing {
namespace {

// 3 to 30 tokens: with 30 of response, what the smallest model has positions for.
std::vector<std::vector<int32_t>> Prompts(int64_t vocabulary) {
  std::vector<std::vector<int32_t>> prompts;
  for (int64_t p = 0; p < 10; ++p) {
    std::vector<int32_t>& prompt = prompts.emplace_back();
    for (int64_t i = 0; i < 3 + 3 * p; ++i) {
      prompt.push_back(static_cast<int32_t>((i * i * 31 + p * 17) % vocabulary));
    }
  }
  return prompts;
}

void RequireParity(const std::filesystem::path& models) {
  int checked = 0;
  for (const auto& model : std::filesystem::directory_iterator(models)) {
    if (!model.is_directory()) continue;
    INFO(model.path());
    const auto spec = LoadModelSpec(model.path());
    REQUIRE(spec.ok());
    ParityOptions options;
    options.model_dir = model.path();
    options.prompts = Prompts(spec->vocab_size);
    options.response_tokens = 30;
    options.max_num_seqs = 16;
    options.max_num_batched_tokens = 150;
    const auto report = RunParity(options);
    INFO(report.status().ToString());
    REQUIRE(report.ok());
    INFO(ParityText(*report));
    REQUIRE(report->ok());
    REQUIRE(report->comparisons[0].identical == 10 * 4 * 30);
    ++checked;
  }
  REQUIRE(checked >= 2);
}

TEST_CASE("decode, prefill and the trainer's forward agree on every golden model") {
  RequireParity(GoldenDir() / "models");
}

}  // namespace
}  // namespace tandem::testing
