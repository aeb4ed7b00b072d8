#include "common/memory/cuda_memory.h"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <utility>

#include "common/memory/cuda_scratch.h"
#include "common/memory/op_sizes.h"
#include "common/types/tensor_view.h"

namespace tandem {
namespace {

// Sizes of attention (common/ops/cuda/attention/attention_layout.h, attention_plan.h and
// attention_kernels.h). Its arrays are uploaded, and are small compared with what they describe.
constexpr int64_t kSegmentTokens = 512;
constexpr int64_t kTileQueries = 16;       // of a tile with partial results
constexpr int64_t kTilesOfFewQueries = 2;  // of a span, at most
constexpr int64_t kStatsQueries = 64;
constexpr int64_t kQueryTileBytes = 20, kKeyTileBytes = 20, kSharedTileBytes = 16;
constexpr int64_t kSpanBytes = 20, kBackwardTileBytes = 8, kRowPlaceBytes = 12;
constexpr int64_t kBlockIdBytes = 4;
// Sizes of the rows of the head: ScoredRow, LogitsGradientRow, ids, DrawRow with ScoredRow.
constexpr int64_t kScoredRowBytes = 8, kGradientRowBytes = 32, kIdBytes = 4, kDrawBytes = 32;
// Sizes of the digests of weights: a pair of sums for each of some hundred tensors.
constexpr int64_t kDigestSumsBytes = 16;
// Kernels of a layer's forward pass, including those for norms of q and k and for attention's
// segments, and of the part before the first layer.
constexpr int64_t kKernelsOfLayer = 14, kKernelsBeside = 2;

int64_t GroupOf(const ModelSpec& spec) { return spec.num_heads / spec.num_kv_heads; }

// A power of two that is at least the number of segments of any position (AttentionSegmentBound).
int64_t SegmentBound(int64_t tokens) {
  const int64_t segments = (std::max<int64_t>(tokens, 1) - 1) / kSegmentTokens + 1;
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(segments)));
}

// Upper bounds of the spans and rows of a call.
struct Spans {
  int64_t count = 0, rows = 0;
  int64_t bound = 1;  // SegmentBound
};

int64_t Partials(const ModelSpec& spec, const Spans& spans) {
  if (spans.bound == 1) return 0;
  const int64_t blocks = kTilesOfFewQueries * spans.count * spec.num_kv_heads * spans.bound;
  return SegmentPartialsBytes(std::min(blocks, kMostSegmentBlocks) * kTileQueries, spec.head_dim);
}

// Bytes of a forward call's plan that are uploaded.
int64_t PlanBytes(const ModelSpec& spec, const Spans& spans) {
  const int64_t tiles =
      spans.rows * GroupOf(spec) / kStatsQueries + kTilesOfFewQueries * spans.count;
  const int64_t blocks = spans.count * spans.bound * kSegmentTokens / kKvBlockTokens;
  return tiles * kQueryTileBytes + blocks * kBlockIdBytes + spans.rows * kRowPlaceBytes +
         4 * kUploadAlignment;
}

int64_t Sequences(const BatchLimits& limits) {
  return std::min(limits.samples + limits.groups, 2 * limits.micro_batch_tokens);
}

Spans SpansOf(const BatchLimits& limits, const BatchShape& shape) {
  return {Sequences(limits), shape.rows, SegmentBound(limits.sequence_tokens)};
}

// Blocks of keys in prompts that several samples share.
int64_t SharedTiles(const BatchLimits& limits, const BatchShape& shape) {
  if (limits.samples <= limits.groups) return 0;
  const int64_t groups = std::min(limits.groups, limits.micro_batch_tokens);
  const int64_t of_prompt = (limits.prompt_tokens + kKeyTileRows - 1) / kKeyTileRows;
  return std::min(groups * of_prompt, shape.rows / kKeyTileRows + groups);
}

int64_t Viewers(const BatchLimits& limits) {
  return 1 + (limits.samples + limits.groups - 1) / std::max<int64_t>(limits.groups, 1);
}

// Uploads of a forward pass until it waits for its log-probs. If samples share prompts, the spans
// of prompts and of responses have plans of their own besides the common one.
int64_t ForwardUploads(const ModelSpec& spec, const BatchLimits& limits, const BatchShape& shape) {
  const int64_t plan = PlanBytes(spec, SpansOf(limits, shape));
  const bool shared = limits.samples > limits.groups;
  const int64_t plans = shared ? 2 * plan + 4 * kUploadAlignment : plan;
  return plans + shape.rows * kIdBytes + shape.scored * (kScoredRowBytes + kIdBytes);
}

int64_t BackwardUploads(const ModelSpec& spec, const BatchLimits& limits, const BatchShape& shape) {
  const int64_t spans = Sequences(limits), shared = SharedTiles(limits, shape);
  const int64_t tiles = shape.rows / kKeyTileRows + spans;
  return spans * kSpanBytes +
         (shape.rows * GroupOf(spec) / kStatsQueries + spans) * kBackwardTileBytes +
         (tiles + kMostKeyParts * shared) * kKeyTileBytes + shared * kSharedTileBytes +
         (tiles + shared * Viewers(limits)) * kIdBytes + shape.rows * kRowPlaceBytes +
         shape.scored * kGradientRowBytes + (shape.rows + shape.scored) * 4 * kIdBytes +
         16 * kUploadAlignment;
}

int64_t Held(const HeadScratch& head) {
  int64_t bytes = 0;
  for (const int64_t slot : {head.logits, head.sums, head.results, head.dlogits, head.dhidden}) {
    if (slot > 0) bytes += ScratchHeld(slot);
  }
  return bytes;
}

// Each slot as large as the larger of the two.
HeadScratch Larger(const HeadScratch& a, const HeadScratch& b) {
  return {std::max(a.logits, b.logits), std::max(a.sums, b.sums), std::max(a.results, b.results),
          std::max(a.dlogits, b.dlogits), std::max(a.dhidden, b.dhidden)};
}

int64_t HeldIfAny(int64_t asked) { return asked > 0 ? ScratchHeld(asked) : 0; }

// A product of few rows, padded to a multiple of 16: the largest one of a layer and of the head
// and, in training, of their inputs' gradients.
int64_t ProductScratch(const ModelSpec& spec, bool training) {
  const int64_t ids = std::min(kGroupIds, spec.vocab_size), hidden = spec.hidden_size;
  const int64_t qkv = (spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim;
  const int64_t heads = spec.num_heads * spec.head_dim, inner = spec.intermediate_size;
  int64_t bytes = PadRows(kFewProductRows, ids, hidden, 4).bytes;
  for (const auto& [out, in] : std::initializer_list<std::pair<int64_t, int64_t>>{
           {qkv, hidden}, {hidden, heads}, {2 * inner, hidden}, {hidden, inner}}) {
    bytes = std::max(bytes, PadRows(kFewProductRows, out, in, 2).bytes);
    if (training) bytes = std::max(bytes, PadRows(kFewProductRows, in, out, 2).bytes);
  }
  if (training) bytes = std::max(bytes, PadRows(kFewProductRows, hidden, ids, 4).bytes);
  return ScratchHeld(bytes);
}

// A x of a product's adapters that are computed separately.
int64_t HeldRankRows(const ModelSpec& spec, int64_t rows) {
  int64_t bytes = 0;
  for (const AdaptedProduct& product : AdaptedProducts(spec)) {
    if (!product.any) continue;
    bytes = std::max(bytes, RankRowsBytes(rows, product.parts(), spec.adapters.rank));
  }
  return HeldIfAny(bytes);
}

int64_t KernelsOfAdapters(const ModelSpec& spec) {
  int64_t products = 0;
  for (const AdaptedProduct& product : AdaptedProducts(spec)) products += product.any ? 1 : 0;
  return 2 * products;
}

// Scratch for sums of squares and digests of the shard, and for its sample of changed elements.
int64_t OptimizerScratch(const ModelSpec& spec, int64_t pairs) {
  constexpr int64_t kDouble = 8;
  constexpr int64_t kSampleBytes = int64_t{2} << 20;  // trainer_worker/shard/changed_weights.cc
  int64_t lanes = 1, groups = 0;
  for (const TensorSpec& tensor : HfTensors(spec)) {
    const int64_t rows = (tensor.shape[0] + pairs - 1) / pairs;
    const int64_t count = NumElements(tensor.shape) / tensor.shape[0] * rows;
    lanes = std::max(lanes, SquareLanes(count));
    groups += SquareGroups(count);
  }
  const int64_t sample = std::min(2 * spec.parameters() / pairs, kSampleBytes);
  return ScratchHeld(std::max(lanes * kDouble, sample)) +
         ScratchHeld(std::max(groups * kDouble, kDigestEdgesBytes));
}

}  // namespace

std::vector<CudaPart> TrainerCudaScratch(const ModelSpec& spec, const CudaTrainerOptions& options) {
  const BatchShape train = LargestMicroBatch(options.train);
  const int64_t vocab = spec.vocab_size;
  HeadScratch head = Larger(ScoreScratch(train.scored, vocab),
                            HeadBackwardScratch(train.scored, spec.hidden_size));
  int64_t partials = std::max(Partials(spec, SpansOf(options.train, train)),
                              KeyPartsBytes(kMostKeyParts * SharedTiles(options.train, train),
                                            spec.num_kv_heads, spec.head_dim));
  // The forward pass follows the backward pass of the previous micro-batch without a wait in
  // between.
  int64_t uploads = (options.recompute ? 2 : 1) * ForwardUploads(spec, options.train, train) +
                    BackwardUploads(spec, options.train, train);
  int64_t rows = train.rows;
  for (const BatchLimits& limits : options.scored) {
    const BatchShape shape = LargestMicroBatch(limits);
    head = Larger(head, ScoreScratch(shape.scored, vocab));
    partials = std::max(partials, Partials(spec, SpansOf(limits, shape)));
    uploads = std::max(uploads, ForwardUploads(spec, limits, shape));
    rows = std::max(rows, shape.rows);
  }
  const int64_t stats =
      QueryStatsBytes(train.rows * GroupOf(spec) + (kStatsQueries - 1) * Sequences(options.train),
                      spec.num_kv_heads);
  const int64_t norms = std::max(
      NormScratchBytes(std::max(train.rows, train.scored), 1, 0, spec.hidden_size),
      spec.qk_norm ? NormScratchBytes(train.rows, spec.num_heads, spec.num_kv_heads, spec.head_dim)
                   : 0);
  const int64_t rope = RopeBytes(options.sequence_tokens, spec.head_dim / 2);
  return {{"head", Held(head)},
          // Forward and backward ops have a rope table each.
          {"attention", HeldIfAny(partials) + ScratchHeld(stats) + 2 * rope},
          {"norms", ScratchHeld(norms)},
          {"products", ProductScratch(spec, true)},
          {"adapters", HeldRankRows(spec, rows) + HeldRankRows(spec, train.rows)},
          {"optimizer", OptimizerScratch(spec, options.pairs) + 256 * kDigestSumsBytes},
          {"uploads", UploadArenasHeld(uploads)}};
}

std::vector<CudaPart> TrainerDriverBytes(const CudaTrainerOptions& options) {
  std::vector<CudaPart> parts = {{"context", kCudaContextBytes}};
  if (options.pairs > 1) parts.push_back({"NCCL", kNcclBytes});
  return parts;
}

namespace {

// The sizes for which decoding steps are recorded.
std::vector<int64_t> StepSizes(const CudaRolloutOptions& options) {
  std::vector<int64_t> sizes;
  const int64_t most = std::min(options.sequences, options.batched_tokens);
  for (int64_t rows = 1; rows <= most; rows = sizes.back() + 1) {
    sizes.push_back(CudaDecodeRows(rows));
  }
  return sizes;
}

// How many bounds of segments steps are recorded for.
int64_t StepBounds(const CudaRolloutOptions& options) {
  return std::bit_width(static_cast<uint64_t>(SegmentBound(options.sequence_tokens)));
}

}  // namespace

std::vector<CudaPart> RolloutCudaScratch(const ModelSpec& spec, const CudaRolloutOptions& options) {
  const int64_t bound = SegmentBound(options.sequence_tokens);
  const Spans spans = {CudaDecodeRows(options.sequences), options.batched_tokens, bound};
  const int64_t step = PlanBytes(spec, spans) + (options.batched_tokens + kSampleRows) * kIdBytes +
                       kSampleRows * kDrawBytes + 8 * kUploadAlignment;
  int64_t graphs = 0;
  for (const int64_t rows : StepSizes(options)) {
    for (int64_t segments = 1; segments <= bound; segments *= 2) {
      graphs += PlanBytes(spec, {rows, rows, segments}) + rows * kIdBytes + 2 * kUploadAlignment;
    }
  }
  const int64_t sums = std::ssize(HfTensors(spec)) * kDigestSumsBytes;
  // All samples of a group draw their first tokens in the same step.
  return {{"head", Held(SampleScratch(kSampleRows, spec.vocab_size, spec.vocab_size))},
          {"attention", HeldIfAny(Partials(spec, spans)) +
                            RopeBytes(options.sequence_tokens, spec.head_dim / 2)},
          {"products", ProductScratch(spec, false)},
          {"adapters", HeldRankRows(spec, std::max(options.batched_tokens, spans.count))},
          {"uploads", UploadArenasHeld(step) + graphs + sums}};
}

std::vector<CudaPart> RolloutDriverBytes(const ModelSpec& spec, const CudaRolloutOptions& options) {
  const int64_t graphs = std::ssize(StepSizes(options)) * StepBounds(options);
  const int64_t kernels =
      spec.num_layers * (kKernelsOfLayer + KernelsOfAdapters(spec)) + kKernelsBeside;
  return {{"context", kCudaContextBytes}, {"graphs", graphs * kernels * kCudaGraphNodeBytes}};
}

}  // namespace tandem
