#include "common/ops/cuda/linear/row_invariance.h"

#include <algorithm>
#include <set>

#include "common/base/numeric.h"
#include "common/base/status.h"
#include "common/memory/cuda_scratch.h"
#include "common/ops/cuda/linear/proof_kernels.h"
#include "common/ops/cuda/linear/tandem_gemm.h"

namespace tandem {
namespace {

constexpr int64_t kAlignment = 256;
// The bytes of results before a product: elements that are not written stay NaN, and elements that
// are not added stay 0, so that an algorithm that skips some differs from the reference.
unsigned char Unwritten(const LtShape& shape) {
  return shape.output == GemmOutput::kFloatAdd ? 0x00 : 0xff;
}

// Elements from one row to the next: a multiple of 16 bytes and of no larger power of two, as
// callers may have.
int64_t OddStride(int64_t cols, int64_t element_bytes) {
  const int64_t unit = 16 / element_bytes;
  const int64_t units = (cols + unit - 1) / unit;
  return (units | 1) * unit;
}

// The operands of one shape's proof: `in` [rows, k], the weight, the bias, two results
// and a counter, in one piece of memory.
struct Layout {
  Layout(const LtShape& shape, int64_t rows)
      : element_bytes(shape.output == GemmOutput::kBf16 ? 2 : 4),
        in_stride(OddStride(shape.k, 2)),
        weight_rows(shape.kind == GemmKind::kForward ? shape.n : shape.k),
        weight_stride(RoundUp(shape.kind == GemmKind::kForward ? shape.k : shape.n, 8)),
        out_stride(OddStride(shape.n, element_bytes)) {
    const auto take = [this](int64_t size) {
      const int64_t at = bytes;
      bytes += RoundUp(size, kAlignment);
      return at;
    };
    in = take(rows * in_stride * 2);
    weight = take(weight_rows * weight_stride * 2);
    bias = take(RoundUp(shape.n, 8) * 2);
    numbers_bytes = bytes;
    reference = take(rows * out_stride * element_bytes);
    result = take(rows * out_stride * element_bytes);
    count = take(sizeof(uint32_t));
  }

  int64_t element_bytes, in_stride, weight_rows, weight_stride, out_stride;
  int64_t bytes = 0, in = 0, weight = 0, bias = 0, reference = 0, result = 0, count = 0;
  int64_t numbers_bytes = 0;  // from the front: what is filled with numbers
};

class Proof {
 public:
  Proof(CudaContext* context, LtApi* lt, const LtShape& shape, const RowInvariancePlan& plan)
      : context_(*context),
        lt_(*lt),
        shape_(shape),
        plan_(plan),
        rows_(ReferenceRows(shape, plan)),
        layout_(shape, rows_) {}
  ~Proof() {
    if (memory_ != nullptr) context_.api().Free(memory_).IgnoreError();
  }
  Proof(const Proof&) = delete;
  Proof& operator=(const Proof&) = delete;

  absl::StatusOr<PinnedAlgorithms> Run();

 private:
  Gemm Product(int64_t first, int64_t rows, int64_t result) const;
  // Candidates for a product of `rows` rows that do not split sums.
  absl::StatusOr<std::vector<LtAlgorithm>> Candidates(int64_t rows, int count);
  // Computes the reference product; false if `algorithm` cannot, or if its result is far from that
  // of our kernels.
  absl::StatusOr<bool> MakeReference(const LtAlgorithm& algorithm);
  // Whether `algorithm` gives the reference's bits for all rows with which a bucket is tried.
  absl::StatusOr<bool> Passes(const LtAlgorithm& algorithm, size_t bucket);
  // The fastest algorithm that passes for each bucket; empty if a bucket has none.
  absl::StatusOr<std::vector<LtAlgorithm>> Pin(const LtAlgorithm& reference);
  // The operands' memory; ResourceExhausted names its bytes.
  absl::StatusOr<std::byte*> TakeMemory();
  // Waits, and returns what the kernels counted.
  absl::StatusOr<uint32_t> TakeCount();
  uint32_t* count() const { return reinterpret_cast<uint32_t*>(memory_ + layout_.count); }

  CudaContext& context_;
  LtApi& lt_;
  const LtShape shape_;
  const RowInvariancePlan& plan_;
  const int64_t rows_;  // of the reference
  const Layout layout_;
  std::byte* memory_ = nullptr;
  int tried_ = 0;
};

Gemm Proof::Product(int64_t first, int64_t rows, int64_t result) const {
  return {.kind = shape_.kind,
          .output = shape_.output,
          .m = rows,
          .n = shape_.n,
          .k = shape_.k,
          .a = memory_ + layout_.in + first * layout_.in_stride * 2,
          .a_stride = layout_.in_stride,
          .b = memory_ + layout_.weight,
          .b_stride = layout_.weight_stride,
          .bias = shape_.bias ? memory_ + layout_.bias : nullptr,
          .c = memory_ + result,
          .c_stride = layout_.out_stride};
}

absl::StatusOr<std::vector<LtAlgorithm>> Proof::Candidates(int64_t rows, int count) {
  TANDEM_ASSIGN_OR_RETURN(std::vector<LtAlgorithm> found,
                          lt_.Candidates(Product(0, rows, layout_.result), count));
  std::erase_if(found, [](const LtAlgorithm& one) { return !MayBeRowInvariant(one); });
  return found;
}

absl::StatusOr<uint32_t> Proof::TakeCount() {
  uint32_t count = 0;
  CudaApi& api = context_.api();
  TANDEM_RETURN_IF_ERROR(api.Copy(&count, this->count(), sizeof(count), context_.stream()));
  TANDEM_RETURN_IF_ERROR(api.Fill(this->count(), 0, sizeof(count), context_.stream()));
  TANDEM_RETURN_IF_ERROR(api.Synchronize(context_.stream()));
  TANDEM_RETURN_IF_ERROR(api.LastError());
  return count;
}

absl::StatusOr<bool> Proof::MakeReference(const LtAlgorithm& algorithm) {
  CudaApi& api = context_.api();
  const int64_t elements = rows_ * layout_.out_stride;
  TANDEM_RETURN_IF_ERROR(api.Fill(memory_ + layout_.reference, Unwritten(shape_),
                                  elements * layout_.element_bytes, context_.stream()));
  const Gemm product = Product(0, rows_, layout_.reference);
  if (const absl::Status run = lt_.Run(product, algorithm, context_.stream()); !run.ok()) {
    return absl::IsInvalidArgument(run) ? absl::StatusOr<bool>(false) : run;
  }
  // Every element that counts may differ from our kernels' result by rounding only. Between the
  // rows both are NaN, which counts as far, unless they are 0: their number is compared.
  Gemm own = product;
  own.c = memory_ + layout_.result;
  TANDEM_RETURN_IF_ERROR(
      api.Fill(own.c, Unwritten(shape_), elements * layout_.element_bytes, context_.stream()));
  TandemGemm(&context_).Run(own);
  cuda::LaunchCountFar(product.c, own.c, elements, shape_.output == GemmOutput::kBf16,
                       static_cast<float>(shape_.k) * 0x1p-20f, count(), context_.stream());
  TANDEM_ASSIGN_OR_RETURN(const uint32_t far, TakeCount());
  return far == (Unwritten(shape_) == 0 ? 0 : rows_ * (layout_.out_stride - shape_.n));
}

absl::StatusOr<bool> Proof::Passes(const LtAlgorithm& algorithm, size_t bucket) {
  CudaApi& api = context_.api();
  ++tried_;
  for (const int64_t rows : RowsToTry(plan_, bucket)) {
    const int64_t last = rows_ - rows;
    for (const int64_t first : std::set<int64_t>{0, std::min<int64_t>(last, 3), last}) {
      const int64_t row_bytes = layout_.out_stride * layout_.element_bytes;
      TANDEM_RETURN_IF_ERROR(api.Fill(memory_ + layout_.result, Unwritten(shape_), rows * row_bytes,
                                      context_.stream()));
      const absl::Status run =
          lt_.Run(Product(first, rows, layout_.result), algorithm, context_.stream());
      if (!run.ok() && !absl::IsInvalidArgument(run)) return run;
      if (!run.ok()) {
        TANDEM_RETURN_IF_ERROR(TakeCount().status());
        return false;
      }
      cuda::LaunchCountDifferences(memory_ + layout_.reference + first * row_bytes,
                                   memory_ + layout_.result, rows * row_bytes / 4, count(),
                                   context_.stream());
    }
  }
  TANDEM_ASSIGN_OR_RETURN(const uint32_t differences, TakeCount());
  return differences == 0;
}

absl::StatusOr<std::vector<LtAlgorithm>> Proof::Pin(const LtAlgorithm& reference) {
  std::vector<LtAlgorithm> pinned(plan_.buckets.size());
  // Starts with the last bucket, whose rows are the reference's own, so that a bad reference is
  // noticed early.
  for (size_t bucket = plan_.buckets.size(); bucket-- > 0;) {
    TANDEM_ASSIGN_OR_RETURN(std::vector<LtAlgorithm> candidates,
                            Candidates(plan_.buckets[bucket], plan_.candidates));
    if (std::find(candidates.begin(), candidates.end(), reference) == candidates.end()) {
      candidates.push_back(reference);
    }
    bool found = false;
    for (size_t i = 0; i < candidates.size() && !found; ++i) {
      TANDEM_ASSIGN_OR_RETURN(found, Passes(candidates[i], bucket));
      pinned[bucket] = candidates[i];
    }
    if (!found) return std::vector<LtAlgorithm>();
  }
  return pinned;
}

absl::StatusOr<std::byte*> Proof::TakeMemory() {
  absl::StatusOr<std::byte*> memory = context_.api().Malloc(layout_.bytes);
  if (!absl::IsResourceExhausted(memory.status())) {
    TANDEM_RETURN_IF_ERROR(Annotate(memory.status(), "operands of the row-invariance proof"));
    return memory;
  }
  const absl::StatusOr<int64_t> free = context_.api().FreeBytes();
  return MakeStatus(
      memory.status().code(),
      "operands of the row-invariance proof take {} bytes ({} MiB) of the device, of which {} MiB "
      "are free: {}; leave this much free beyond what other processes use (tandemctl plan), or set "
      "TANDEM_CUDA_LINEAR=own for all workers",
      layout_.bytes, layout_.bytes >> 20, free.value_or(0) >> 20,
      std::string(memory.status().message()));
}

absl::StatusOr<PinnedAlgorithms> Proof::Run() {
  CudaApi& api = context_.api();
  if (rows_ == 0) {
    // This depends on the shape alone, on every device and with any amount of free memory.
    return MakeStatus(absl::StatusCode::kNotFound,
                      "operands of the row-invariance proof would take more than the {} MiB that "
                      "it is granted",
                      plan_.most_bytes >> 20);
  }
  TANDEM_ASSIGN_OR_RETURN(memory_, TakeMemory());
  cuda::LaunchFillNumbers(memory_, layout_.numbers_bytes / 2,
                          static_cast<uint32_t>(shape_.n * 31 + shape_.k), context_.stream());
  TANDEM_RETURN_IF_ERROR(api.Fill(count(), 0, sizeof(uint32_t), context_.stream()));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<LtAlgorithm> references,
                          Candidates(rows_, plan_.references));
  for (const LtAlgorithm& reference : references) {
    TANDEM_ASSIGN_OR_RETURN(const bool usable, MakeReference(reference));
    if (!usable) continue;
    TANDEM_ASSIGN_OR_RETURN(std::vector<LtAlgorithm> pinned, Pin(reference));
    if (!pinned.empty()) return PinnedAlgorithms{plan_.buckets, std::move(pinned)};
  }
  return absl::NotFoundError(
      fmt::format("no algorithm of cuBLASLt {} gives a row the same bits whatever the rows: {} "
                  "references and {} candidates tried",
                  lt_.version(), references.size(), tried_));
}

}  // namespace

int64_t ReferenceRows(const LtShape& shape, const RowInvariancePlan& plan) {
  const Layout one(shape, 1);
  const int64_t of_row = one.in_stride * 2 + 2 * one.out_stride * one.element_bytes;
  // Each part is followed by a gap of less than kAlignment.
  const int64_t fitting = (plan.most_bytes - one.bytes - 3 * kAlignment) / of_row;
  const int64_t rows = std::min(plan.reference_rows, fitting);
  return rows > plan.buckets.back() ? rows / kProductRows * kProductRows : 0;
}

std::vector<int64_t> RowsToTry(const RowInvariancePlan& plan, size_t bucket) {
  const int64_t below = bucket == 0 ? 0 : plan.buckets[bucket - 1];
  std::vector<int64_t> rows;
  for (int64_t more = below + kProductRows; more <= plan.buckets[bucket]; more += kProductRows) {
    rows.push_back(more);
  }
  return rows;
}

const LtAlgorithm& PinnedAlgorithms::For(int64_t rows) const {
  const auto bucket = std::lower_bound(buckets.begin(), buckets.end(), rows);
  return bucket == buckets.end() ? algorithms.back()
                                 : algorithms[static_cast<size_t>(bucket - buckets.begin())];
}

bool MayBeRowInvariant(const LtAlgorithm& algorithm) {
  // Sums that blocks share go through a workspace, whatever the split is called.
  return algorithm.split_k <= 1 && algorithm.reduction == 0 && algorithm.workspace_bytes == 0;
}

int64_t ProofBytes(const LtShape& shape, const RowInvariancePlan& plan) {
  const int64_t rows = ReferenceRows(shape, plan);
  return rows == 0 ? 0 : Layout(shape, rows).bytes;
}

absl::StatusOr<PinnedAlgorithms> ProveRows(CudaContext* context,
                                           LtApi* lt,
                                           const LtShape& shape,
                                           const RowInvariancePlan& plan) {
  return Proof(context, lt, shape, plan).Run();
}

}  // namespace tandem
