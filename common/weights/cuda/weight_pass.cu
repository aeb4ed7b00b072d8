#include "common/ops/cuda/rows/element_math.h"
#include "common/weights/cuda/weight_pass.h"
#include "common/weights/digest_keys.h"

namespace tandem {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kLoadBytes = 16;  // per thread and access: a quarter of a block
constexpr int64_t kSweepBytes = kThreads * kLoadBytes;  // per access of all threads
constexpr int kBlockBytes = 64;
constexpr int kAtOnce = 4;  // loads in flight, which hide the latency of memory
static_assert(kWeightTileBytes % (kAtOnce * kSweepBytes) == 0, "a whole tile has no rest");

__host__ __device__ constexpr bool Rounds(WeightPassKind kind) {
  return kind == WeightPassKind::kRound || kind == WeightPassKind::kReadRounded;
}
__host__ __device__ constexpr bool Writes(WeightPassKind kind) {
  return kind != WeightPassKind::kRead && kind != WeightPassKind::kReadRounded;
}

// Blocks per multiprocessor, which limits the registers of a thread: rounding with keys needs more
// than 64.
__host__ __device__ constexpr int BlocksAtOnce(WeightPassKind kind, bool digest) {
  return digest && Rounds(kind) ? 3 : 4;
}

// The run to which a tile belongs: the last one that begins at or before it.
__device__ __forceinline__ int64_t RunOf(const WeightRun* runs, int64_t count, int64_t tile) {
  int64_t low = 0, high = count;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (runs[middle].first_tile <= tile ? low : high) = middle;
  }
  return low;
}

// A thread's two sums over its quarters of blocks; its keys advance with the block.
struct ThreadDigest {
  uint32_t key[kDigestSums][4], step[kDigestSums][4];
  uint64_t sum[kDigestSums];

  __device__ __forceinline__ ThreadDigest(const DigestKeys& keys, int64_t block) {
    const int word = static_cast<int>(threadIdx.x) % 4 * 4;
    for (int p = 0; p < kDigestSums; ++p) {
      sum[p] = 0;
      for (int i = 0; i < 4; ++i) {
        const uint32_t grow = keys.step[p][word + i];
        key[p][i] = keys.start[p][word + i] + static_cast<uint32_t>(block) * grow;
        step[p][i] = grow * static_cast<uint32_t>(kSweepBytes / kBlockBytes);
      }
    }
  }

  // Adds the thread's next quarter, which is one sweep further.
  __device__ __forceinline__ void Add(const Words4& words) {
    for (int p = 0; p < kDigestSums; ++p) {
      sum[p] += static_cast<uint64_t>(words.x + key[p][0]) * (words.y + key[p][1]) +
                static_cast<uint64_t>(words.z + key[p][2]) * (words.w + key[p][3]);
      for (int i = 0; i < 4; ++i) key[p][i] += step[p][i];
    }
  }

  // Sums over the threads of the block and adds the result to `sums` once.
  __device__ __forceinline__ void AddTo(uint64_t* sums) {
    TANDEM_SHARED(of_warps, uint64_t[kWarps][kDigestSums]);
    for (int p = 0; p < kDigestSums; ++p) {
      for (int lanes = 16; lanes > 0; lanes /= 2) sum[p] += ShuffleXor(sum[p], lanes);
    }
    if (threadIdx.x % 32 == 0) {
      for (int p = 0; p < kDigestSums; ++p) of_warps[threadIdx.x / 32][p] = sum[p];
    }
    __syncthreads();
    if (threadIdx.x >= kDigestSums) return;
    uint64_t all = 0;
    for (int warp = 0; warp < kWarps; ++warp) all += of_warps[warp][threadIdx.x];
    AtomicAdd(sums + threadIdx.x, all);
  }
};

__device__ __forceinline__ uint32_t RoundedPair(uint32_t low, uint32_t high) {
  return uint32_t{WeightBits(BitsToFloat(high))} << 16 | WeightBits(BitsToFloat(low));
}
__device__ __forceinline__ Words4 RoundedWords(const Words4& low, const Words4& high) {
  return {RoundedPair(low.x, low.y), RoundedPair(low.z, low.w), RoundedPair(high.x, high.y),
          RoundedPair(high.z, high.w)};
}

// The 16 bytes at `offset` of the run's result; requires aligned addresses.
template <WeightPassKind kKind>
__device__ __forceinline__ Words4 Load(const WeightRun& run, int64_t offset) {
  const auto* from = static_cast<const unsigned char*>(run.from);
  if constexpr (kKind == WeightPassKind::kNan) {
    return {~0u, ~0u, ~0u, ~0u};
  } else if constexpr (Rounds(kKind)) {
    const auto* words = reinterpret_cast<const Words4*>(from + 2 * offset);
    return RoundedWords(words[0], words[1]);
  } else {
    return *reinterpret_cast<const Words4*>(from + offset);
  }
}

// The 16-bit element at `offset` of the run's result.
template <WeightPassKind kKind>
__device__ __forceinline__ uint16_t LoadElement(const WeightRun& run, int64_t offset) {
  const auto* from = static_cast<const unsigned char*>(run.from);
  if constexpr (kKind == WeightPassKind::kNan) {
    return 0xffff;
  } else if constexpr (Rounds(kKind)) {
    return WeightBits(*reinterpret_cast<const float*>(from + 2 * offset));
  } else {
    return *reinterpret_cast<const uint16_t*>(from + offset);
  }
}

// Handles a quarter block element by element, if it is not aligned or the run ends inside it.
template <WeightPassKind kKind>
__device__ __forceinline__ Words4 MoveElements(const WeightRun& run, int64_t offset) {
  uint32_t words[4] = {};
  for (int i = 0; i < kLoadBytes / 2; ++i) {
    const int64_t at = offset + 2 * i;
    if (at >= run.bytes) break;
    const uint16_t element = LoadElement<kKind>(run, at);
    words[i / 2] |= static_cast<uint32_t>(element) << (i % 2 * 16);
    if constexpr (Writes(kKind)) {
      *reinterpret_cast<uint16_t*>(static_cast<unsigned char*>(run.to) + at) = element;
    }
  }
  return {words[0], words[1], words[2], words[3]};
}

template <WeightPassKind kKind>
__device__ __forceinline__ void Store(const WeightRun& run, int64_t offset, const Words4& words) {
  if constexpr (Writes(kKind)) {
    *reinterpret_cast<Words4*>(static_cast<unsigned char*>(run.to) + offset) = words;
  }
}

// A block of threads handles one tile; thread t takes quarter t % 4 of its weight blocks.
template <WeightPassKind kKind, bool kDigest>
__global__ void __launch_bounds__(kThreads, BlocksAtOnce(kKind, kDigest))
    PassTiles(const WeightRun* runs, int64_t count, uint64_t* sums, DigestKeys keys) {
  const WeightRun run = runs[RunOf(runs, count, blockIdx.x)];
  const int64_t tile = (static_cast<int64_t>(blockIdx.x) - run.first_tile) * kWeightTileBytes;
  const int64_t left = run.bytes - tile;
  const int64_t end = tile + (left < kWeightTileBytes ? left : kWeightTileBytes);
  int64_t offset = tile + static_cast<int64_t>(threadIdx.x) * kLoadBytes;
  ThreadDigest digest(keys, run.first_block + offset / kBlockBytes);
  const uintptr_t address =
      reinterpret_cast<uintptr_t>(run.from) | reinterpret_cast<uintptr_t>(run.to);
  if (address % kLoadBytes == 0) {
    for (; offset + (kAtOnce - 1) * kSweepBytes + kLoadBytes <= end;
         offset += kAtOnce * kSweepBytes) {
      Words4 words[kAtOnce];
      for (int i = 0; i < kAtOnce; ++i) words[i] = Load<kKind>(run, offset + i * kSweepBytes);
      for (int i = 0; i < kAtOnce; ++i) {
        Store<kKind>(run, offset + i * kSweepBytes, words[i]);
        if constexpr (kDigest) digest.Add(words[i]);
      }
    }
    for (; offset + kLoadBytes <= end; offset += kSweepBytes) {
      const Words4 words = Load<kKind>(run, offset);
      Store<kKind>(run, offset, words);
      if constexpr (kDigest) digest.Add(words);
    }
  }
  for (; offset < end; offset += kSweepBytes) {
    const Words4 words = MoveElements<kKind>(run, offset);
    if constexpr (kDigest) digest.Add(words);
  }
  // A short last block is padded with zeros, which contribute to the sums as well.
  if constexpr (kDigest) {
    if (offset < (end + kBlockBytes - 1) / kBlockBytes * kBlockBytes) digest.Add({0, 0, 0, 0});
    digest.AddTo(sums + run.sums * kDigestSums);
  }
}

template <WeightPassKind kKind, bool kDigest>
void LaunchPass(const WeightPass& pass, CudaStream stream) {
  const LaunchShape shape = {.grid_x = static_cast<unsigned>(pass.tiles), .threads = kThreads};
  Launch(PassTiles<kKind, kDigest>, shape, stream, pass.runs, pass.count, pass.sums, kDigestKeys);
}

template <WeightPassKind kKind>
void LaunchKind(const WeightPass& pass, CudaStream stream) {
  if (pass.sums != nullptr) {
    LaunchPass<kKind, true>(pass, stream);
  } else {
    LaunchPass<kKind, false>(pass, stream);
  }
}

}  // namespace

void LaunchWeightPass(WeightPassKind kind, const WeightPass& pass, CudaStream stream) {
  if (pass.tiles == 0) return;
  switch (kind) {
    case WeightPassKind::kCopy:
      return LaunchKind<WeightPassKind::kCopy>(pass, stream);
    case WeightPassKind::kRound:
      return LaunchKind<WeightPassKind::kRound>(pass, stream);
    case WeightPassKind::kRead:
      return LaunchKind<WeightPassKind::kRead>(pass, stream);
    case WeightPassKind::kNan:
      return LaunchKind<WeightPassKind::kNan>(pass, stream);
    case WeightPassKind::kReadRounded:
      return LaunchKind<WeightPassKind::kReadRounded>(pass, stream);
  }
}

}  // namespace tandem
