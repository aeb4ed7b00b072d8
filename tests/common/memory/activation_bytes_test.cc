#include "common/memory/activation_bytes.h"

#include <catch2/catch.hpp>

#include "common/base/numeric.h"
#include "common/memory/memory_formulas.h"
#include "tests/common/model_spec/small_spec.h"

namespace tandem {
using testing::SmallSpec;

TEST_CASE("A layer's activations are rows of whole cache lines", "[model_spec][activations]") {
  const ModelSpec spec = SmallSpec();
  REQUIRE(RowBytes(8, 2) == 64);
  REQUIRE(RowBytes(32, 2) == 64);
  REQUIRE(RowBytes(33, 2) == 128);
  // hidden, qkv (16 + 2 * 8), q, hidden, hidden, 24, 12 columns: all below a line in bf16.
  REQUIRE(LayerActivationBytes(spec, 2, 10) == 10 * 7 * 64);
  // Without q/k norms there is no fifth matrix.
  REQUIRE(BackwardScratchBytes(spec, 2, 10) == 10 * 4 * 64);
}

TEST_CASE("Buffers of a micro-batch follow each other by what backward needs",
          "[model_spec][activations]") {
  const ModelSpec spec = SmallSpec();
  const BatchShape shape{.rows = 100, .scored = 50, .kv_blocks = 4};
  const auto nothing = PlaceMicroBatch(spec, 2, shape, Keep::kNothing);
  const auto inputs = PlaceMicroBatch(spec, 2, shape, Keep::kLayerInputs);
  const auto everything = PlaceMicroBatch(spec, 2, shape, Keep::kEverything);
  REQUIRE(nothing.residuals.size() == 2);
  REQUIRE(inputs.residuals.size() == 4);
  REQUIRE(inputs.layers.size() == 1);
  REQUIRE(everything.layers.size() == 3);
  REQUIRE(nothing.end < inputs.end);
  // Two more layers, each rounded up to pages.
  const int64_t layer = RoundUp(LayerActivationBytes(spec, 2, 100), 4096);
  REQUIRE(everything.end == inputs.end + 2 * layer);
  REQUIRE(everything.kv % 4096 == 0);
  REQUIRE(everything.scored_residual - everything.kv >= 4 * KvBlockLayerBytes(spec, 2));
}

TEST_CASE("No micro-batch is larger than its limits allow", "[model_spec][activations]") {
  BatchLimits limits{.micro_batch_tokens = 1000,
                     .samples = 8,
                     .groups = 2,
                     .prompt_tokens = 40,
                     .response_tokens = 10,
                     .sequence_tokens = 50};
  const BatchShape shape = LargestMicroBatch(limits);
  REQUIRE(shape.rows == 2 * 40 + 8 * 9);  // prompts once, no row for the last token
  REQUIRE(shape.scored == 80);
  REQUIRE(shape.kv_blocks >= 8);

  limits.micro_batch_tokens = 100;
  REQUIRE(LargestMicroBatch(limits).rows == 100);
  limits.micro_batch_tokens = 60;
  REQUIRE(LargestMicroBatch(limits).scored == 60);
  // One sequence of 130 rows spans three blocks.
  REQUIRE(LargestMicroBatch({.micro_batch_tokens = 1000,
                             .samples = 1,
                             .groups = 1,
                             .prompt_tokens = 100,
                             .response_tokens = 31,
                             .sequence_tokens = 131})
              .kv_blocks >= 3);
}

}  // namespace tandem
