// c = op(a) op(b) by tensor cores: a block's tiles of a and b come in kTileK steps through a ring
// of `stages` buffers that cp.async fills ahead; warps read fragments by ldmatrix. gemm_tile.h says
// why a row's bits do not depend on the tile.
// tensor cores: Multiply
#include <type_traits>

#include "common/device/cuda/kernel.h"
#include "common/ops/cuda/linear/gemm_kernels.h"

namespace tandem::cuda {
namespace {

// The fields of Gemm that the kernel reads.
struct Operands {
  const uint16_t* a;
  const uint16_t* b;
  const uint16_t* bias;
  void* c;
  int64_t a_stride, b_stride, c_stride;
  int m, n, k;
  unsigned tiles_m, tiles_n;
};

// Where a thread's copies of one operand come from: step after step along k, tiles of kLines rows
// of memory with kChunks chunks of 8 elements each. A thread copies the same chunk of every
// kPass-th line; beyond the matrix it writes zeros. What changes from step to step is three
// numbers, so that no address needs a register of its own.
template <int kLines, int kChunks, int kThreads, bool kAlongLines>
class TileSource {
 public:
  // The block's first tile begins at line `line` and column `col` of a matrix [lines, cols].
  __device__ __forceinline__
  TileSource(const uint16_t* matrix, int64_t stride, int line, int lines, int col, int cols)
      : stride_(stride) {
    const int chunk = static_cast<int>(threadIdx.x) % kChunks;
    const int first = static_cast<int>(threadIdx.x) / kChunks;
    from_ = matrix + (line + first) * stride + col + chunk * 8;
    lines_left_ = lines - line - first;
    cols_left_ = cols - col - chunk * 8;
    to_ = SwizzledElement(first, chunk, kChunks);
  }

  // Copies this step's tile and advances to the next one.
  __device__ __forceinline__ void Load(uint16_t* tile) {
    const uint16_t* from = from_;
    TANDEM_UNROLL
    for (int i = 0; i < kLines / kPass; ++i) {
      CopyAsync16(tile + to_ + i * kPass * kChunks * 8, from,
                  i * kPass < lines_left_ && cols_left_ > 0);
      from += kPass * stride_;
    }
    if constexpr (kAlongLines) {
      from_ += kTileK * stride_;
      lines_left_ -= kTileK;
    } else {
      from_ += kTileK;
      cols_left_ -= kTileK;
    }
  }

 private:
  static constexpr int kPass = kThreads / kChunks;
  // A line has the same swizzle as the line kPass further.
  static_assert(kThreads % kChunks == 0 && kLines % kPass == 0 && kPass % 8 == 0);

  const uint16_t* from_;
  int64_t stride_;
  int lines_left_, cols_left_, to_;
};

// How a warp reads one operand's fragments. kSide is the tile's size along c, of which the warp's
// part begins at `side`; the tile lies in shared memory as [kSide][kTileK], or as [kTileK][kSide]
// if kTransposed. Swizzling is an exclusive or of bits, and so is a step from one fragment to the
// next: one offset per thread is enough.
template <bool kTransposed, int kSide>
class FragmentReader {
 public:
  // Of a: matrices along c first, then along k; of b the other way round (kernel.h's fragments).
  __device__ __forceinline__ FragmentReader(int side, bool along_c_first) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int low = lane / 8 % 2, high = lane / 16;
    const int of_c = along_c_first ? low : high, of_k = along_c_first ? high : low;
    offset_ = kTransposed ? SwizzledElement(of_k * 8 + lane % 8, side / 8 + of_c, kSide / 8)
                          : SwizzledElement(side + of_c * 8 + lane % 8, of_k, kTileK / 8);
  }
  // The fragment at the `step`th 16 along c from the warp's part on, and 16 of k from `k` on.
  __device__ __forceinline__ void Load(uint32_t (&r)[4],
                                       const uint16_t* tile,
                                       int step,
                                       int k) const {
    if constexpr (kTransposed) {
      LdMatrix4Transposed(r, tile + (offset_ ^ step * 16) + k * kSide);
    } else {
      LdMatrix4(r, tile + (offset_ ^ k) + step * 16 * kTileK);
    }
  }

 private:
  int offset_;
};

// Writes `count` (at most kCount) elements, all at once if there are kCount.
template <int kCount, typename T>
__device__ __forceinline__ void StoreChunk(T* to, const T* from, int count) {
  if (count >= kCount) {
    *reinterpret_cast<Words4*>(to) = *reinterpret_cast<const Words4*>(from);
  } else {
    for (int i = 0; i < count; ++i) to[i] = from[i];
  }
}
__device__ __forceinline__ void AddChunk(float* to, const float* from, int count) {
  if (count >= 4) {
    Words4 sum = *reinterpret_cast<const Words4*>(to);
    sum.x = FloatToBits(BitsToFloat(sum.x) + from[0]);
    sum.y = FloatToBits(BitsToFloat(sum.y) + from[1]);
    sum.z = FloatToBits(BitsToFloat(sum.z) + from[2]);
    sum.w = FloatToBits(BitsToFloat(sum.w) + from[3]);
    *reinterpret_cast<Words4*>(to) = sum;
  } else {
    for (int i = 0; i < count; ++i) to[i] += from[i];
  }
}

// A block's work on its tile of c.
template <GemmTile kTile, GemmKind kKind, GemmOutput kOutput>
struct Block {
  static constexpr TileShape kShape = ShapeOf(kTile);
  static constexpr bool kTransposedA = kKind == GemmKind::kWeights;
  static constexpr bool kTransposedB = kKind != GemmKind::kForward;
  static constexpr int kThreads = kShape.threads();
  static constexpr int kRows = kShape.m / kShape.warps_m, kCols = kShape.n / kShape.warps_n;
  static constexpr int kMmaM = kRows / 16, kMmaN = kCols / 8;
  static constexpr int kTileA = kShape.m * kTileK, kStage = (kShape.m + kShape.n) * kTileK;
  static_assert(kRows % 16 == 0 && kCols % 16 == 0);
  // Steps along c flip bits of a swizzled offset.
  static_assert(kRows <= 64 && kCols <= 64 && kShape.m % kRows == 0 && kShape.n % kCols == 0);
  static_assert((!kTransposedA || kShape.m >= 64) && (!kTransposedB || kShape.n >= 64));

  const Operands& g;
  const int m0, n0;    // of the tile
  const int row, col;  // of the warp's part, in the tile
  uint16_t* const shared;
  const FragmentReader<kTransposedA, kShape.m> reader_a;
  const FragmentReader<kTransposedB, kShape.n> reader_b;
  float sums[kMmaM][kMmaN][4];

  __device__ __forceinline__ Block(const Operands& operands, TilePlace place)
      : g(operands),
        m0(place.m * kShape.m),
        n0(place.n * kShape.n),
        row(static_cast<int>(threadIdx.x) / 32 / kShape.warps_n * kRows),
        col(static_cast<int>(threadIdx.x) / 32 % kShape.warps_n * kCols),
        shared(reinterpret_cast<uint16_t*>(SharedMemory())),
        reader_a(row, true),
        reader_b(col, false) {
    TANDEM_UNROLL
    for (auto& rows : sums) {
      TANDEM_UNROLL
      for (auto& four : rows) four[0] = four[1] = four[2] = four[3] = 0.0f;
    }
  }

  using SourceA = std::conditional_t<kTransposedA,
                                     TileSource<kTileK, kShape.m / 8, kThreads, true>,
                                     TileSource<kShape.m, kTileK / 8, kThreads, false>>;
  using SourceB = std::conditional_t<kTransposedB,
                                     TileSource<kTileK, kShape.n / 8, kThreads, true>,
                                     TileSource<kShape.n, kTileK / 8, kThreads, false>>;

  __device__ __forceinline__ void Multiply(int stage) {
    const uint16_t* const a = shared + stage * kStage;
    const uint16_t* const b = a + kTileA;
    TANDEM_UNROLL
    for (int k = 0; k < kTileK; k += 16) {
      uint32_t of_a[kMmaM][4], of_b[kMmaN / 2][4];
      TANDEM_UNROLL
      for (int i = 0; i < kMmaM; ++i) {
        reader_a.Load(of_a[i], a, i, k);
      }
      TANDEM_UNROLL
      for (int j = 0; j < kMmaN / 2; ++j) {
        reader_b.Load(of_b[j], b, j, k);
      }
      TANDEM_UNROLL
      for (int i = 0; i < kMmaM; ++i) {
        TANDEM_UNROLL
        for (int j = 0; j < kMmaN; ++j) {
          const uint32_t pair[2] = {of_b[j / 2][j % 2 * 2], of_b[j / 2][j % 2 * 2 + 1]};
          MmaBf16(sums[i][j], of_a[i], pair);
        }
      }
    }
  }

  __device__ __forceinline__ void Sum() {
    SourceA a(g.a, g.a_stride, kTransposedA ? 0 : m0, kTransposedA ? g.k : g.m,
              kTransposedA ? m0 : 0, kTransposedA ? g.m : g.k);
    SourceB b(g.b, g.b_stride, kTransposedB ? 0 : n0, kTransposedB ? g.k : g.n,
              kTransposedB ? n0 : 0, kTransposedB ? g.n : g.k);
    // If no step is left, nothing is copied, but a group must still be counted.
    const auto load = [&](int stage, bool left) {
      if (left) {
        uint16_t* const buffer = shared + stage * kStage;
        a.Load(buffer);
        b.Load(buffer + kTileA);
      }
      CopyCommit();
    };
    const int steps = (g.k + kTileK - 1) / kTileK;  // at least one
    TANDEM_UNROLL
    for (int step = 0; step < kShape.stages - 1; ++step) load(step, step < steps);
    int stage = 0, free = kShape.stages - 1;
    int to_load = steps - free;  // negative: fewer steps than a full ring
    TANDEM_ROLLED
    do {
      CopyWait<kShape.stages - 2>();
      // All threads' copies of the stage have arrived, and no thread reads the previous stage any
      // more, which is filled next.
      __syncthreads();
      load(free, to_load > 0);
      Multiply(stage);
      free = stage;
      stage = stage + 1 < kShape.stages ? stage + 1 : 0;
    } while (--to_load > 1 - kShape.stages);
    CopyWait<0>();
    __syncthreads();
  }

  // Writes the sums, as elements of c, to shared memory, where the chunks of a row of c are
  // adjacent.
  template <typename T>
  __device__ __forceinline__ void Stage(T* result) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    TANDEM_UNROLL
    for (int j = 0; j < kMmaN; ++j) {
      const int c = col + j * 8 + lane % 4 * 2;
      float bias[2] = {0.0f, 0.0f};
      if (kKind == GemmKind::kForward && g.bias != nullptr) {
        if (n0 + c < g.n) bias[0] = FromBf16Bits(g.bias[n0 + c]);
        if (n0 + c + 1 < g.n) bias[1] = FromBf16Bits(g.bias[n0 + c + 1]);
      }
      TANDEM_UNROLL
      for (int i = 0; i < kMmaM; ++i) {
        TANDEM_UNROLL
        for (int half = 0; half < 2; ++half) {
          T* const to = result + (row + i * 16 + half * 8 + lane / 4) * (kShape.n + 8) + c;
          float low = sums[i][j][half * 2], high = sums[i][j][half * 2 + 1];
          if (kKind == GemmKind::kForward && g.bias != nullptr) low += bias[0], high += bias[1];
          if constexpr (sizeof(T) == 2) {
            *reinterpret_cast<uint32_t*>(to) = PackBf16(low, high);
          } else {
            *reinterpret_cast<uint64_t*>(to) =
                static_cast<uint64_t>(FloatToBits(high)) << 32 | FloatToBits(low);
          }
        }
      }
    }
  }

  template <typename T>
  __device__ __forceinline__ void Store() {
    T* const result = reinterpret_cast<T*>(shared);
    Stage(result);
    __syncthreads();
    constexpr int kCount = 16 / sizeof(T), kChunks = kShape.n / kCount;
    TANDEM_ROLLED
    for (int i = static_cast<int>(threadIdx.x); i < kShape.m * kChunks; i += kThreads) {
      const int r = i / kChunks, c = i % kChunks * kCount;
      if (m0 + r >= g.m || n0 + c >= g.n) continue;
      T* const to = static_cast<T*>(g.c) + (m0 + r) * g.c_stride + n0 + c;
      const T* const from = result + r * (kShape.n + 8) + c;
      if constexpr (kOutput == GemmOutput::kFloatAdd) {
        AddChunk(to, from, g.n - n0 - c);
      } else {
        StoreChunk<kCount>(to, from, g.n - n0 - c);
      }
    }
  }
};

// Two blocks of the largest tile on a multiprocessor: at most 128 registers a thread.
template <GemmTile kTile, GemmKind kKind, GemmOutput kOutput>
__global__ void __launch_bounds__(ShapeOf(kTile).threads(), 512 / ShapeOf(kTile).threads())
    Multiply(Operands g) {
  Block<kTile, kKind, kOutput> block(g, PlaceOf(blockIdx.x, g.tiles_m, g.tiles_n));
  block.Sum();
  if constexpr (kOutput == GemmOutput::kBf16) {
    block.template Store<uint16_t>();
  } else {
    block.template Store<float>();
  }
}

template <GemmTile kTile, GemmKind kKind, GemmOutput kOutput>
void Start(const Gemm& gemm, CudaStream stream) {
  constexpr TileShape kShape = ShapeOf(kTile);
  const Operands operands = {static_cast<const uint16_t*>(gemm.a),
                             static_cast<const uint16_t*>(gemm.b),
                             static_cast<const uint16_t*>(gemm.bias),
                             gemm.c,
                             gemm.a_stride,
                             gemm.b_stride,
                             gemm.c_stride,
                             static_cast<int>(gemm.m),
                             static_cast<int>(gemm.n),
                             static_cast<int>(gemm.k),
                             static_cast<unsigned>(TilesOf(gemm.m, kShape.m)),
                             static_cast<unsigned>(TilesOf(gemm.n, kShape.n))};
  LaunchShape shape;
  shape.grid_x = operands.tiles_m * operands.tiles_n;
  shape.threads = kShape.threads();
  shape.shared_bytes = kShape.shared_bytes();
  Launch(Multiply<kTile, kKind, kOutput>, shape, stream, operands);
}

template <GemmOutput kOutput>
void StartForward(const Gemm& gemm, GemmTile tile, CudaStream stream) {
  constexpr GemmKind kKind = GemmKind::kForward;
  switch (tile) {
    case GemmTile::k16x32:
      return Start<GemmTile::k16x32, kKind, kOutput>(gemm, stream);
    case GemmTile::k32x32:
      return Start<GemmTile::k32x32, kKind, kOutput>(gemm, stream);
    case GemmTile::k64x32:
      return Start<GemmTile::k64x32, kKind, kOutput>(gemm, stream);
    case GemmTile::k64x64:
      return Start<GemmTile::k64x64, kKind, kOutput>(gemm, stream);
    case GemmTile::k128x128:
      return Start<GemmTile::k128x128, kKind, kOutput>(gemm, stream);
  }
}

template <GemmKind kKind, GemmOutput kOutput>
void StartBackward(const Gemm& gemm, GemmTile tile, CudaStream stream) {
  if (tile == GemmTile::k128x128) return Start<GemmTile::k128x128, kKind, kOutput>(gemm, stream);
  Start<GemmTile::k64x64, kKind, kOutput>(gemm, stream);
}

}  // namespace

void LaunchGemm(const Gemm& gemm, GemmTile tile, CudaStream stream) {
  if (gemm.kind == GemmKind::kWeights) {
    StartBackward<GemmKind::kWeights, GemmOutput::kFloatAdd>(gemm, tile, stream);
  } else if (gemm.kind == GemmKind::kInput && gemm.output == GemmOutput::kFloatAdd) {
    StartBackward<GemmKind::kInput, GemmOutput::kFloatAdd>(gemm, tile, stream);
  } else if (gemm.kind == GemmKind::kInput) {
    StartBackward<GemmKind::kInput, GemmOutput::kBf16>(gemm, tile, stream);
  } else if (gemm.output == GemmOutput::kFloat) {
    StartForward<GemmOutput::kFloat>(gemm, tile, stream);
  } else {
    StartForward<GemmOutput::kBf16>(gemm, tile, stream);
  }
}

}  // namespace tandem::cuda
