#include "common/memory/cuda_memory.h"

#include <algorithm>

#include <catch2/catch.hpp>

#include "common/memory/cuda_scratch.h"
#include "common/memory/op_sizes.h"

namespace tandem {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

// Sizes of an 8B model.
ModelSpec LargeSpec() {
  ModelSpec spec;
  spec.model_type = "qwen3";
  spec.vocab_size = 151936;
  spec.hidden_size = 4096;
  spec.num_layers = 36;
  spec.num_heads = 32;
  spec.num_kv_heads = 8;
  spec.head_dim = 128;
  spec.intermediate_size = 12288;
  spec.qk_norm = true;
  return spec;
}

int64_t Of(const std::vector<CudaPart>& parts, const std::string& what) {
  const auto found = std::find_if(parts.begin(), parts.end(),
                                  [&](const CudaPart& part) { return part.what == what; });
  REQUIRE(found != parts.end());
  return found->bytes;
}

int64_t SumOf(const std::vector<CudaPart>& parts) {
  int64_t bytes = 0;
  for (const CudaPart& part : parts) bytes += part.bytes;
  return bytes;
}

CudaTrainerOptions TrainerInput() {
  return {.sequence_tokens = 4096,
          .train = {.micro_batch_tokens = 16384,
                    .samples = 64,
                    .groups = 8,
                    .prompt_tokens = 1024,
                    .response_tokens = 3072,
                    .sequence_tokens = 4096}};
}

}  // namespace

TEST_CASE("scratch is held in whole MiB and a quarter more than was asked for", "[model_spec]") {
  REQUIRE(ScratchHeld(1) == kMib);
  REQUIRE(ScratchHeld(4 * kMib) == 5 * kMib);
  REQUIRE(ScratchHeld(4 * kMib + 1) == 6 * kMib);
  REQUIRE(UploadArenasHeld(1) == 4 * kMib);
  REQUIRE(UploadArenasHeld(4 * kMib) == 4 * kMib);
  // 4, 8 and 16 MiB until the next wait.
  REQUIRE(UploadArenasHeld(9 * kMib) == 28 * kMib);
}

TEST_CASE("the head samples with all logits of its rows, and trains in blocks of rows",
          "[model_spec]") {
  const int64_t vocab = 151936;
  // 148 MiB of logits of 256 rows.
  REQUIRE(SampleScratch(256, vocab, vocab).logits == 256 * vocab * 4);
  REQUIRE(SampleScratch(1000, vocab, vocab).logits == 256 * vocab * 4);
  REQUIRE(ScoreScratch(100000, vocab).logits == 32 * kMib);
  REQUIRE(ScoreScratch(10, vocab).logits == 10 * kGroupIds * 4);
  // 2,048 rows of one product's ids, whatever the vocabulary: 192 MiB, and their hidden gradients.
  const HeadScratch most = HeadBackwardScratch(100000, 4096);
  REQUIRE(most.logits == 128 * kMib);
  REQUIRE(most.dlogits == 64 * kMib);
  REQUIRE(most.dhidden == 32 * kMib);
  REQUIRE(HeadBackwardScratch(2, 4096).dlogits == 2 * kGroupIds * 2);
}

TEST_CASE("a norm's gradient has factors of all heads and partial sums of both weights",
          "[model_spec]") {
  REQUIRE(NormScratchBytes(300, 1, 0, 64) == (300 + 2 * 64) * 4);
  REQUIRE(NormScratchBytes(300, 4, 2, 64) == (300 * 6 + (5 + 3) * 64) * 4);
}

TEST_CASE("a trainer's scratch knows its largest calls", "[model_spec]") {
  const ModelSpec spec = LargeSpec();
  CudaTrainerOptions options = TrainerInput();
  const std::vector<CudaPart> parts = TrainerCudaScratch(spec, options);
  const int64_t backward =
      ScratchHeld(128 * kMib) + ScratchHeld(64 * kMib) + ScratchHeld(32 * kMib);
  REQUIRE(Of(parts, "head") >= backward);
  REQUIRE(Of(parts, "head") <= backward + 16 * kMib);
  // Prompts that samples share: 4 parts of each of 8 x 16 blocks of keys.
  REQUIRE(Of(parts, "attention") >= KeyPartsBytes(4 * 8 * 16, 8, 128));
  REQUIRE(SumOf(parts) < int64_t{2} << 30);
  options.recompute = true;
  REQUIRE(Of(TrainerCudaScratch(spec, options), "uploads") >= Of(parts, "uploads"));
  // Without shared prompts keys have one viewer each, and there is one plan; memory is taken in
  // large pieces.
  options.train.groups = options.train.samples;
  const std::vector<CudaPart> alone = TrainerCudaScratch(spec, options);
  REQUIRE(Of(alone, "attention") < Of(parts, "attention"));
  REQUIRE(Of(alone, "uploads") <= Of(parts, "uploads"));
  // A pass that scores more than training does takes what it takes.
  options.train.response_tokens = 1;
  options.train.samples = options.train.groups = 1;
  const int64_t few = Of(TrainerCudaScratch(spec, options), "head");
  options.scored.push_back(TrainerInput().train);
  REQUIRE(Of(TrainerCudaScratch(spec, options), "head") >= few + 32 * kMib);
}

TEST_CASE("a rollout's scratch is that of its head, its segments and its graphs' arrays",
          "[model_spec]") {
  const ModelSpec spec = LargeSpec();
  CudaRolloutOptions options{.sequence_tokens = 4096, .sequences = 256, .batched_tokens = 8192};
  const std::vector<CudaPart> parts = RolloutCudaScratch(spec, options);
  REQUIRE(Of(parts, "head") >= 256 * int64_t{151936} * 4 * 5 / 4);
  // 16,384 blocks of 16 queries.
  REQUIRE(Of(parts, "attention") >= SegmentPartialsBytes(16384 * 16, 128));
  // By 16 to 64, then by 32: 10 sizes at bounds of 1, 2, 4 and 8 segments.
  const std::vector<CudaPart> driver = RolloutDriverBytes(spec, options);
  REQUIRE(Of(driver, "graphs") % (10 * 4 * kCudaGraphNodeBytes) == 0);
  REQUIRE(Of(driver, "context") == kCudaContextBytes);
  // Sequences of one segment need no partial results.
  options.sequence_tokens = 512;
  REQUIRE(Of(RolloutCudaScratch(spec, options), "attention") == RopeBytes(512, 64));
  REQUIRE(Of(RolloutDriverBytes(spec, options), "graphs") == Of(driver, "graphs") / 4);
}

TEST_CASE("NCCL is planned for where ranks are several", "[model_spec]") {
  REQUIRE(SumOf(TrainerDriverBytes({.pairs = 1})) == kCudaContextBytes);
  REQUIRE(SumOf(TrainerDriverBytes({.pairs = 4})) == kCudaContextBytes + kNcclBytes);
}

TEST_CASE("decoding steps come in few sizes", "[model_spec]") {
  REQUIRE(CudaStepRows(1) == 1);
  REQUIRE(CudaStepRows(3) == 4);
  REQUIRE(CudaStepRows(9) == 16);
  REQUIRE(CudaStepRows(64) == 64);
  REQUIRE(CudaStepRows(65) == 96);
  REQUIRE(CudaStepRows(256) == 256);
  // Whole sixteens, as products want them.
  for (int64_t rows = 1; rows <= 300; ++rows) {
    REQUIRE(CudaDecodeRows(rows) >= CudaStepRows(rows));
    REQUIRE(CudaDecodeRows(rows) < CudaStepRows(rows) + 16);
    REQUIRE(CudaDecodeRows(rows) % 16 == 0);
  }
}

TEST_CASE("products of few rows are planned with the scratch that they take", "[model_spec]") {
  const ModelSpec spec = LargeSpec();
  CudaTrainerOptions options;
  options.train = TrainerInput().train;
  const int64_t training = Of(TrainerCudaScratch(spec, options), "products");
  const int64_t forward = Of(RolloutCudaScratch(spec, {}), "products");
  // The gate and up of 64 rows, and the same the other way round.
  const PaddedRows up = PadRows(63, 2 * spec.intermediate_size, spec.hidden_size, 2);
  REQUIRE(up.rows == 64);
  REQUIRE(up.bytes == 64 * (2 * spec.intermediate_size + spec.hidden_size) * 2);
  REQUIRE(forward >= up.bytes);
  REQUIRE(training >= PadRows(64, spec.hidden_size, 16384, 4).bytes);
  REQUIRE(training >= forward);
  REQUIRE(training < 2 * up.bytes + (16 << 20));
}

}  // namespace tandem
