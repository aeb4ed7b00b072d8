#include "common/ops/cpu/gemm_driver.h"

#include <algorithm>
#include <cstring>

#include <tmmintrin.h>

#include "common/ops/cpu/packed_weight.h"

namespace tandem {
namespace {
constexpr int64_t kGemmTasksPerThread = 4;

// A product as tasks of rows by panels.
struct Pieces {
  int64_t row_chunks = 1, panel_chunks = 1;
};

Pieces CutProduct(
    const GemmCut& cut, int threads, const GemmCall& call, int64_t rows, int64_t row_units) {
  const int64_t wanted = threads > 1 ? threads * kGemmTasksPerThread : 1;
  const int64_t panels = (call.n + 15) / 16;
  Pieces pieces;
  pieces.panel_chunks = (call.n * call.k + cut.b_elements - 1) / cut.b_elements;
  pieces.row_chunks = std::max((rows * call.k + cut.a_elements - 1) / cut.a_elements,
                               std::min(rows / cut.min_rows, wanted / pieces.panel_chunks));
  pieces.row_chunks = std::min(pieces.row_chunks, row_units);
  const int64_t most = std::max(panels / cut.min_panels, int64_t{1});
  const int64_t lacking = (wanted + pieces.row_chunks - 1) / pieces.row_chunks;
  pieces.panel_chunks = std::min(std::max(pieces.panel_chunks, lacking), most);
  return pieces;
}

}  // namespace

void RunGemm(ThreadPool& pool, const KernelSet& kernels, const GemmCall& call, int64_t rows) {
  const GemmCut& cut = kernels.gemm_cut;
  const int64_t panels = (call.n + 15) / 16, units = (panels + cut.panel_unit - 1) / cut.panel_unit;
  // Aᵀ in panels has 16 rows per panel.
  const int64_t row_unit = call.a_panel_bytes == 0 ? cut.row_unit : (cut.row_unit + 15) / 16 * 16;
  const int64_t row_units = (rows + row_unit - 1) / row_unit;
  if (rows <= 0 || panels == 0) return;
  const Pieces pieces = CutProduct(cut, pool.threads(), call, rows, row_units);
  pool.ParallelFor(pieces.row_chunks * pieces.panel_chunks, [&](int64_t task, int) {
    const int64_t row = task % pieces.row_chunks, panel = task / pieces.row_chunks;
    const auto first_row = [&](int64_t i) {
      return std::min(rows, row_units * i / pieces.row_chunks * row_unit);
    };
    const auto first_panel = [&](int64_t i) {
      return std::min(panels, units * i / pieces.panel_chunks * cut.panel_unit);
    };
    kernels.gemm(call, first_row(row), first_row(row + 1), first_panel(panel),
                 first_panel(panel + 1));
  });
}

namespace {

__m128i Load16(const std::byte* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
void Store16(std::byte* p, __m128i value) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), value);
}

const std::byte* At(const PanelSource& source, int64_t row, int64_t col) {
  return static_cast<const std::byte*>(source.data) +
         (row * source.stride + col) * source.element_bytes;
}

// Copies one row of `bytes` into a lane of a panel and pads the last word with zeros.
void PackLane(const std::byte* row, int64_t bytes, std::byte* lane) {
  int64_t word = 0;
  for (; word < bytes / 4; ++word) std::memcpy(lane + word * 64, row + word * 4, 4);
  if (bytes % 4 != 0) {
    std::memset(lane + word * 64, 0, 4);
    std::memcpy(lane + word * 64, row + word * 4, static_cast<size_t>(bytes % 4));
  }
}

// Interleaves two rows of 16 bf16 (or one row and zeros) into the 16 words of a panel.
void InterleaveRows(const std::byte* even, const std::byte* odd, std::byte* words) {
  for (int64_t half = 0; half < 2; ++half) {
    const __m128i a = Load16(even + half * 16), b = Load16(odd + half * 16);
    Store16(words + half * 32, _mm_unpacklo_epi16(a, b));
    Store16(words + half * 32 + 16, _mm_unpackhi_epi16(a, b));
  }
}

// The 16 elements at `from`, of which `cols` exist: in place, or copied to `buffer`.
const std::byte* SixteenColumns(const std::byte* from,
                                int64_t cols,
                                int64_t element_bytes,
                                std::byte* buffer) {
  if (cols >= 16) return from;
  std::memset(buffer, 0, 64);
  std::memcpy(buffer, from, static_cast<size_t>(cols * element_bytes));
  return buffer;
}

// 16 rows and 16 columns of a packed bf16 weight: 8 words of 16 lanes. A word holds columns 2w and
// 2w + 1 of a row; afterwards rows 2r and 2r + 1 of a column.
void TransposeBlock16(const std::byte* from, std::byte* to) {
  const __m128i pair_rows = _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
  for (int64_t word = 0; word < 8; ++word) {
    for (int64_t lane = 0; lane < 16; lane += 4) {
      const __m128i pairs = _mm_shuffle_epi8(Load16(from + word * 64 + lane * 4), pair_rows);
      std::byte* out = to + lane / 2 * 64 + word * 8;
      _mm_storel_epi64(reinterpret_cast<__m128i*>(out), pairs);
      _mm_storel_epi64(reinterpret_cast<__m128i*>(out + 64), _mm_unpackhi_epi64(pairs, pairs));
    }
  }
}

// The same of a packed fp32 weight: `cols` words of 16 lanes become 16 words of `cols` lanes.
void TransposeBlock32(const std::byte* from, int64_t cols, std::byte* to) {
  for (int64_t col = 0; col < cols; ++col) {
    for (int64_t row = 0; row < 16; ++row) {
      std::memcpy(to + row * 64 + col * 4, from + col * 64 + row * 4, 4);
    }
  }
}

}  // namespace

void PackRowPanels(const PanelSource& source, std::byte* panels) {
  const int64_t panel_bytes = PanelBytes(source.cols, source.element_bytes);
  for (int64_t row = 0; row < source.rows; ++row) {
    PackLane(At(source, row, 0), source.cols * source.element_bytes,
             panels + row / 16 * panel_bytes + row % 16 * 4);
  }
  const int64_t words = PanelWords(source.cols, source.element_bytes);
  for (int64_t row = source.rows; row % 16 != 0; ++row) {
    std::byte* lane = panels + row / 16 * panel_bytes + row % 16 * 4;
    for (int64_t word = 0; word < words; ++word) std::memset(lane + word * 64, 0, 4);
  }
}

void PackColumnPanels(const PanelSource& source, int64_t first, int64_t last, std::byte* panels) {
  const int64_t bytes = source.element_bytes;
  const int64_t panel_bytes = PanelBytes(source.rows, bytes);
  const int64_t step = 4 / bytes;
  alignas(16) std::byte even_buffer[64], odd_buffer[64];
  for (int64_t row = 0; row < source.rows; row += step) {
    for (int64_t panel = first; panel < last; ++panel) {
      const int64_t cols = source.cols - panel * 16;
      std::byte* words = panels + panel * panel_bytes + row / step * 64;
      const std::byte* even = SixteenColumns(At(source, row, panel * 16), cols, bytes, even_buffer);
      if (bytes == 4) {
        std::memcpy(words, even, 64);
      } else if (row + 1 < source.rows) {
        const std::byte* odd =
            SixteenColumns(At(source, row + 1, panel * 16), cols, bytes, odd_buffer);
        InterleaveRows(even, odd, words);
      } else {
        std::memset(odd_buffer, 0, sizeof(odd_buffer));
        InterleaveRows(even, odd_buffer, words);
      }
    }
  }
}

void TransposePackedWeight(const std::byte* packed,
                           int64_t rows,
                           int64_t cols,
                           int64_t element_bytes,
                           int64_t first,
                           int64_t last,
                           std::byte* panels) {
  const DType dtype = element_bytes == 2 ? DType::kBFloat16 : DType::kFloat32;
  const int64_t source_bytes = PackedBytes(16, cols, dtype);
  const int64_t row_panels = (rows + 15) / 16;
  const int64_t panel_bytes = PanelBytes(row_panels * 16, element_bytes);
  const int64_t block_bytes = PanelBytes(16, element_bytes);
  for (int64_t panel = first; panel < last; ++panel) {
    for (int64_t row_panel = 0; row_panel < row_panels; ++row_panel) {
      const std::byte* from = packed + row_panel * source_bytes + panel * block_bytes;
      std::byte* to = panels + panel * panel_bytes + row_panel * block_bytes;
      if (element_bytes == 2) {
        TransposeBlock16(from, to);
      } else {
        const int64_t block_cols = std::min<int64_t>(16, cols - panel * 16);
        if (block_cols < 16) std::memset(to, 0, static_cast<size_t>(block_bytes));
        TransposeBlock32(from, block_cols, to);
      }
    }
  }
}

}  // namespace tandem
