#include "common/memory/cpu_scratch.h"

#include <algorithm>
#include <initializer_list>

#include "common/base/numeric.h"
#include "common/memory/op_sizes.h"

namespace tandem {
namespace {

// Constants of the kernels in common/ops/cpu, repeated here to compute what they cost.
constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kThreadScratch = int64_t{512} << 10;  // forward_ops.cc takes it at the start
constexpr int64_t kVocabChunk = 1024;
constexpr int64_t kChunkStatsBytes = 12;
constexpr int64_t kCpuScoreRows = 128;
constexpr int64_t kDrawRowsOfChunk = 32;
constexpr int64_t kFilteredRows = 8;
constexpr int64_t kAttentionQueries = 48;
constexpr int64_t kSumBlock = 512;
constexpr int64_t kLogitsBlock = 1024;
constexpr int64_t kLogitsTaskRows = 64;
constexpr int64_t kQueryBlock = 64;
constexpr int64_t kDroppedRows = 256;

// common/ops/cpu/workspace.h rounds large scratch up to huge pages.
int64_t Rounded(int64_t bytes) { return RoundUp(bytes, bytes >= kHugePage ? kHugePage : 64); }

// Size of scratch of which every pass requests these bytes in this order; it grows by at least
// half.
int64_t Grown(std::initializer_list<int64_t> needs) {
  int64_t capacity = 0;
  for (const int64_t bytes : needs) {
    if (bytes > capacity) capacity = Rounded(std::max(bytes, capacity + capacity / 2));
  }
  return capacity;
}

// Upper bound of scratch that starts with `held` bytes and of which at most `most` are requested,
// in sizes that depend on the data: the size before the last growth may have been almost `most`.
int64_t Bound(int64_t held, int64_t most) {
  return most <= held ? held : Rounded(std::max(most, most + most / 2));
}

int64_t Panels(int64_t lanes, int64_t summed, int64_t element_bytes) {
  return (lanes + 15) / 16 * ((summed * element_bytes + 3) / 4 * 64);
}

// A task of forward attention: some rows of one KV head over a whole context.
int64_t AttentionBytes(const ModelSpec& spec, const ScratchOptions& options) {
  const int64_t group = spec.num_heads / spec.num_kv_heads;
  const int64_t queries = std::max(kAttentionQueries / group, int64_t{1}) * group;
  const int64_t stride = RoundUp(options.sequence_tokens, kKvBlockTokens) + 32;
  return RoundUp(queries * stride * 4, 64) + RoundUp(queries * KvPaddedDim(spec.head_dim) * 4, 64) +
         RoundUp(queries * 4, 64) + RoundUp(queries * stride * options.element_bytes, 64) +
         RoundUp(queries * spec.head_dim * options.element_bytes, 64);
}

// A task of backward attention: one KV head of one sequence.
int64_t AttentionBackwardBytes(const ModelSpec& spec, const ScratchOptions& options) {
  const int64_t keys = options.sequence_tokens, dim = spec.head_dim, width = options.element_bytes;
  const int64_t block = kQueryBlock * (RoundUp(keys, 16) + 32);
  return 2 * RoundUp(keys * dim * width, 64) + 2 * Panels(keys, dim, width) +
         Panels(dim, keys, width) + 2 * Panels(dim, kQueryBlock, width) +
         2 * RoundUp(keys * dim * 4, 64) + 2 * RoundUp(block * 4, 64) +
         2 * RoundUp(block * width, 64) + Panels(keys, kQueryBlock, width);
}

// A x of all parts of a product, for adapters that are computed separately.
int64_t BoundRankRows(const ModelSpec& spec, int64_t rows) {
  int64_t parts = 0;
  for (const AdaptedProduct& product : AdaptedProducts(spec)) {
    if (product.any) parts = std::max(parts, product.parts());
  }
  return parts == 0 ? 0 : Bound(0, rows * parts * spec.adapters.rank * 4);
}

// Further scratch of the backward pass for separate adapters.
int64_t AdapterBackwardBytes(const ModelSpec& spec, int64_t element_bytes, int64_t rows) {
  int64_t panels = 0, wide = 0;
  for (const AdaptedProduct& product : AdaptedProducts(spec)) {
    if (!product.any) continue;
    const int64_t width = RoundUp(product.parts() * spec.adapters.rank, 16);
    panels = std::max(panels, Panels(product.in, width, element_bytes));
    wide = std::max(wide, product.out() * spec.adapters.rank * 4);
  }
  if (wide == 0) return 0;
  return 2 * BoundRankRows(spec, rows) + Bound(0, panels) + Bound(0, wide);
}

// Scratch for dropout before adapters: copies of inputs in forward and backward, and the sums
// twice.
int64_t DropoutBytes(const ModelSpec& spec, int64_t element_bytes, int64_t rows) {
  int64_t elements = 0;
  for (const AdaptedProduct& product : AdaptedProducts(spec)) {
    if (product.any) elements = std::max(elements, std::min(rows, kDroppedRows) * product.in);
  }
  return 2 * Bound(0, elements * element_bytes) + Bound(0, 2 * elements * 4);
}

int64_t ForwardBytes(const ModelSpec& spec, const ScratchOptions& options, int64_t scored) {
  const int64_t chunks = (spec.vocab_size + kVocabChunk - 1) / kVocabChunk;
  const int64_t thread = Bound(
      kThreadScratch,
      std::max(AttentionBytes(spec, options), std::min(scored, kCpuScoreRows) * kVocabChunk * 4));
  return options.threads * thread + Bound(0, scored * chunks * kChunkStatsBytes);
}

int64_t BackwardBytes(const ModelSpec& spec,
                      const ScratchOptions& options,
                      const BatchShape& shape) {
  const int64_t width = options.element_bytes, hidden = spec.hidden_size;
  const int64_t inner = spec.intermediate_size, qkv = spec.qkv_rows(), q = spec.q_rows();
  const int64_t rows = std::min(shape.rows, kSumBlock);
  const int64_t scored = std::min(shape.scored, kLogitsBlock);
  const auto pad = [](int64_t count) { return RoundUp(count, 16); };
  // In the order in which backward runs: head, then down, gate_up, o and qkv of the layers.
  const int64_t weights =
      Grown({Panels(hidden, kVocabChunk, width), Panels(inner, pad(hidden), width),
             Panels(hidden, pad(2 * inner), width), Panels(q, pad(hidden), width),
             Panels(hidden, pad(qkv), width)});
  const int64_t in = std::max({Panels(hidden, scored, width), Panels(inner, rows, width),
                               Panels(hidden, rows, width), Panels(q, rows, width)});
  const int64_t out = std::max({Panels(kVocabChunk, scored, width), Panels(hidden, rows, width),
                                Panels(2 * inner, rows, width), Panels(qkv, rows, width)});
  const int64_t thread =
      Bound(kLogitsTaskRows * kVocabChunk * 4, AttentionBackwardBytes(spec, options));
  const int64_t norm_rows = spec.qk_norm ? shape.rows * spec.num_heads : shape.rows;
  return weights + Bound(0, in) + Bound(0, out) + options.threads * thread +
         Bound(0, 4 * std::max(norm_rows, shape.scored)) + Bound(0, scored * kVocabChunk * width) +
         Bound(0, scored * hidden * 4);
}

}  // namespace

int64_t TrainerScratchBytes(const ModelSpec& spec,
                            const ScratchOptions& options,
                            const BatchShape& largest) {
  return ForwardBytes(spec, options, largest.scored) + BackwardBytes(spec, options, largest) +
         BoundRankRows(spec, largest.rows) +
         AdapterBackwardBytes(spec, options.element_bytes, largest.rows) +
         (options.adapters_drop ? DropoutBytes(spec, options.element_bytes, largest.rows) : 0);
}

int64_t RolloutScratchBytes(const ModelSpec& spec, const ScratchOptions& options, bool filtered) {
  const int64_t drawing =
      ((kDrawRowsOfChunk + 1) * kVocabChunk + kDrawRowsOfChunk * spec.hidden_size) * 4;
  const int64_t thread = Bound(
      kThreadScratch, std::max({AttentionBytes(spec, options), kCpuScoreRows * kVocabChunk * 4,
                                drawing, filtered ? 2 * spec.vocab_size * 4 : 0}));
  const int64_t chunks = (spec.vocab_size + kVocabChunk - 1) / kVocabChunk;
  const int64_t bytes = options.threads * thread + Bound(0, kDrawRows * chunks * kChunkStatsBytes) +
                        BoundRankRows(spec, options.batched_tokens);
  if (!filtered) return bytes;
  return bytes + Bound(0, kFilteredRows * spec.hidden_size * options.element_bytes) +
         Bound(0, kFilteredRows * spec.vocab_size * 4);
}

}  // namespace tandem
