// Slots of CudaContext::Scratch that the row ops and the head use; CudaAttention has slots of its
// own. Forward and backward share them, as a call's scratch ends with the call.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/base/numeric.h"

namespace tandem {

inline constexpr int kLogitsSlot = 0;         // fp32 logits
inline constexpr int kLogitSumsSlot = 1;      // LogitSums of rows and chunks
inline constexpr int kRowResultsSlot = 2;     // results for the host, one value per row
inline constexpr int kDlogitsSlot = 3;        // bf16 gradients of logits
inline constexpr int kNormSlot = 4;           // NormScratch
inline constexpr int kHeadSumsSlot = 7;       // fp32 gradients of hidden rows
inline constexpr int kProductSlot = 8;        // PaddedRows of a product
inline constexpr int kRankRowsSlot = 9;       // A x of adapters
inline constexpr int kRankGradientSlot = 10;  // its gradient

// Sizes of what a GPU's ops take of its scratch (CudaContext::Scratch and Upload). The ops
// (common/ops/cuda) allocate by these functions, and the memory plan adds them up for the largest
// calls of a run (common/memory/cuda_memory.h), so the two agree. Bytes unless a name says
// otherwise.

// Bytes of a slot of which at most `asked` were requested: a slot grows by a quarter more than
// requested.
inline constexpr int64_t kScratchUnit = int64_t{1} << 20;
constexpr int64_t ScratchHeld(int64_t asked) { return RoundUp(asked + asked / 4, kScratchUnit); }

// Small arrays are uploaded through arenas: the first one has this size, each further one twice the
// size of the last; a synchronisation keeps the largest.
inline constexpr int64_t kUploadArenaBytes = int64_t{4} << 20;
inline constexpr int64_t kUploadAlignment = 256;
// Bytes of all arenas if at most `bytes` are uploaded between two synchronisations.
constexpr int64_t UploadArenasHeld(int64_t bytes) {
  int64_t last = kUploadArenaBytes;
  while (last < bytes) last *= 2;
  return 2 * last - kUploadArenaBytes;
}

// How the vocabulary is split for log-softmax and sampling, as on a CPU (ops/numerics_layout.h),
// and for the products of the head.
inline constexpr int64_t kCudaVocabChunk = 1024;
constexpr int64_t CudaVocabChunks(int64_t vocab_limit) {
  return (vocab_limit + kCudaVocabChunk - 1) / kCudaVocabChunk;
}
inline constexpr int64_t kGroupChunks = 16;  // of one product
inline constexpr int64_t kGroupIds = kGroupChunks * kCudaVocabChunk;
constexpr int64_t HeadGroups(int64_t vocab_limit) {
  return (vocab_limit + kGroupIds - 1) / kGroupIds;
}
// A stride of logits that holds all groups up to vocab_limit.
constexpr int64_t AllIdsStride(int64_t head_rows, int64_t vocab_limit) {
  return RoundUp(std::min(HeadGroups(vocab_limit) * kGroupIds, head_rows), 8);
}

// Scratch that the head's ops use at the same time, one slot each.
struct HeadScratch {
  int64_t logits = 0;   // fp32
  int64_t sums = 0;     // per row and chunk
  int64_t results = 0;  // per row
  int64_t dlogits = 0;  // bf16
  int64_t dhidden = 0;  // fp32 sums
};
inline constexpr int64_t kLogitSumsBytes = 12, kRowScoreBytes = 20, kSampledTokenBytes = 12;

// TokenLogProbs of `rows` in total, at most kScoreRows at a time, whose logits of one group fill 32
// MiB.
inline constexpr int64_t kScoreRows = 512;
constexpr HeadScratch ScoreScratch(int64_t rows, int64_t vocab_limit) {
  const int64_t at_once = std::min(kScoreRows, rows);
  return {.logits = at_once * kGroupIds * 4,
          .sums = at_once * CudaVocabChunks(vocab_limit) * kLogitSumsBytes,
          .results = rows * (kRowScoreBytes + 4)};
}

// Sample of `rows`, at most kSampleRows of which have all their logits in memory at a time.
inline constexpr int64_t kSampleRows = 256;
constexpr HeadScratch SampleScratch(int64_t rows, int64_t head_rows, int64_t vocab_limit) {
  const int64_t at_once = std::min(kSampleRows, rows);
  return {.logits = at_once * AllIdsStride(head_rows, vocab_limit) * 4,
          .sums = at_once * CudaVocabChunks(vocab_limit) * kLogitSumsBytes,
          .results = at_once * (kRowScoreBytes + kSampledTokenBytes)};
}

// The gradient of TokenLogProbs, at most kHeadBackwardRows at a time, one group of ids after the
// other. Many rows at a time, because each time passes over the whole gradient of the head.
inline constexpr int64_t kHeadBackwardRows = 2048;
constexpr HeadScratch HeadBackwardScratch(int64_t rows, int64_t hidden_size) {
  const int64_t at_once = std::min(kHeadBackwardRows, rows);
  return {.logits = at_once * kGroupIds * 4,
          .dlogits = at_once * kGroupIds * 2,
          .dhidden = at_once * hidden_size * 4};
}

// The gradient of norms: a factor for each head of a row, and partial sums of the gradients of the
// two weights over kNormSumRows heads each, where `first_heads` of a row use one weight and
// `other_heads` the other.
inline constexpr int64_t kNormSumRows = 256;
constexpr int64_t NormScratchBytes(int64_t rows,
                                   int64_t first_heads,
                                   int64_t other_heads,
                                   int64_t cols) {
  const int64_t partials = (rows * first_heads + kNormSumRows - 1) / kNormSumRows +
                           (rows * other_heads + kNormSumRows - 1) / kNormSumRows;
  return (rows * (first_heads + other_heads) + partials * cols) * 4;
}

// Partial results of attention: of `slots` queries and segments and, in backward, of `parts` of
// keys that many queries see, for each KV head.
inline constexpr int64_t kMostSegmentBlocks = 16384;  // of threads, in such a launch
constexpr int64_t SegmentPartialsBytes(int64_t slots, int64_t head_dim) {
  return slots * (head_dim + 2) * 4;
}
inline constexpr int64_t kKeyTileRows = 64, kMostKeyParts = 4;
constexpr int64_t KeyPartsBytes(int64_t parts, int64_t kv_heads, int64_t head_dim) {
  return parts * kv_heads * 2 * kKeyTileRows * head_dim * 4;
}
// Two statistics of each query in backward; `slots` for each KV head.
constexpr int64_t QueryStatsBytes(int64_t slots, int64_t kv_heads) {
  return 2 * kv_heads * slots * 4;
}
// cos and sin of a rope table on the device.
constexpr int64_t RopeBytes(int64_t positions, int64_t half_dim) {
  return 2 * positions * half_dim * 4;
}

// The sum of squares of `count` gradients: running sums in double for each block, then groups.
inline constexpr int64_t kCudaSquaresBlock = 4096;
inline constexpr int64_t kSquaresOfGroup = 256;
constexpr int64_t SquareLanes(int64_t count) {
  return (count + kCudaSquaresBlock - 1) / kCudaSquaresBlock * 8;
}
constexpr int64_t SquareGroups(int64_t count) {
  return (SquareLanes(count) + kSquaresOfGroup - 1) / kSquaresOfGroup;
}
// The unaligned ends of digested runs, which are copied to the host.
inline constexpr int64_t kDigestEdgesBytes = int64_t{64} << 10;

// Rows to which a decoding step of `rows` is padded: about twenty sizes up to 256, since each size
// is a graph of its own.
constexpr int64_t CudaStepRows(int64_t rows) {
  int64_t power = 1;
  while (power < rows) power *= 2;
  return rows <= 8 ? power : RoundUp(rows, rows <= 64 ? 8 : 32);
}

// GPU memory that the proof of cuBLASLt's row invariance may take
// (common/ops/cuda/linear/row_invariance.h); the memory plan counts it.

// For the operands of one shape; freed again after the proof.
inline constexpr int64_t kLtProofBytes = int64_t{1} << 30;

// Scratch of separate adapters on a GPU. The ops (common/ops/cuda/adapters.h) and the memory plan
// (common/memory/cuda_memory.h) use the same functions.

// Bytes of `rows` rows of a product's parts, each with `rank` fp32 values: A x, or a gradient of
// it.
constexpr int64_t RankRowsBytes(int64_t rows, int64_t parts, int64_t rank) {
  return rows * parts * rank * 4;
}

// Rows of products on a GPU. cuBLASLt's algorithms are proved for multiples of 16 rows
// (common/ops/cuda/linear/row_invariance.h) and are given no others: the remaining rows of a
// product go through padded scratch. Bytes unless a name says otherwise.
inline constexpr int64_t kProductRows = 16;
// Products of fewer rows go through scratch as a whole, since each product reads the whole weight;
// of larger ones only the rows after the last multiple of 16 do.
inline constexpr int64_t kFewProductRows = 64;

// Rows to which a decoding step is padded, so that none of its layers' products goes through
// scratch.
constexpr int64_t CudaDecodeRows(int64_t rows) { return RoundUp(CudaStepRows(rows), kProductRows); }

// Padded rows of both operands of a product [rows, n] = [rows, k] ..., first those of a: bf16, and
// `out_bytes` per element of the result. Strides are in elements.
struct PaddedRows {
  int64_t rows = 0, a_stride = 0, c_stride = 0;
  int64_t a_bytes = 0, bytes = 0;
};
constexpr PaddedRows PadRows(int64_t rows, int64_t n, int64_t k, int64_t out_bytes) {
  PaddedRows padded;
  padded.rows = RoundUp(rows, kProductRows);
  padded.a_stride = RoundUp(k, 8);
  padded.c_stride = RoundUp(n, 8);
  padded.a_bytes = padded.rows * padded.a_stride * 2;
  padded.bytes = padded.a_bytes + padded.rows * padded.c_stride * out_bytes;
  return padded;
}

}  // namespace tandem
