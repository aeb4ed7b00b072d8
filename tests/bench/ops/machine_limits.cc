#include "tests/bench/ops/machine_limits.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include <immintrin.h>

#include "tests/bench/ops/stopwatch.h"
#include "tests/common/ops/ops_fixture.h"

namespace tandem::bench {
namespace {

#define TANDEM_TARGET(features) __attribute__((target(features), noinline))

constexpr int kSteps = 20000;

// 12 chains of multiply-adds in 16 registers, 12 * kSteps instructions.
#define TANDEM_TWELVE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
void FmaLoop512() {
  for (int i = 0; i < kSteps; ++i) {
#define TANDEM_STEP(n) "vfmadd231ps %%zmm15, %%zmm14, %%zmm" #n "\n"
    asm volatile(TANDEM_TWELVE(TANDEM_STEP)::);
#undef TANDEM_STEP
  }
}
void FmaLoop256() {
  for (int i = 0; i < kSteps; ++i) {
#define TANDEM_STEP(n) "vfmadd231ps %%ymm15, %%ymm14, %%ymm" #n "\n"
    asm volatile(TANDEM_TWELVE(TANDEM_STEP)::);
#undef TANDEM_STEP
  }
}
void PairLoop512() {
  for (int i = 0; i < kSteps; ++i) {
#define TANDEM_STEP(n) "vdpbf16ps %%zmm15, %%zmm14, %%zmm" #n "\n"
    asm volatile(TANDEM_TWELVE(TANDEM_STEP)::);
#undef TANDEM_STEP
  }
}
TANDEM_TARGET("avx512f") void RunRegisters(void (*loop)()) {
  asm volatile("vzeroall" ::: "memory");
  loop();
  asm volatile("vzeroupper" ::: "memory");
}

// Whole tiles, while it lives.
class Tiles {
 public:
  Tiles() {
    struct Config {
      uint8_t palette, start_row, reserved[14];
      uint16_t row_bytes[16];
      uint8_t rows[16];
    };
    alignas(64) Config config = {};
    config.palette = 1;
    for (int tile = 0; tile < 8; ++tile) {
      config.row_bytes[tile] = 64;
      config.rows[tile] = 16;
    }
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  ~Tiles() { asm volatile("tilerelease"); }
};

// 12 * kSteps products of whole tiles.
void TileLoop() {
  const Tiles tiles;
  for (int i = 0; i < kSteps * 3; ++i) {
    asm volatile(
        "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n"
        "tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n"
        "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n"
        "tdpbf16ps %%tmm7, %%tmm5, %%tmm3\n" ::);
  }
}

// The best rate of `threads` that run body(thread) at the same time, units per call.
double BestRate(int threads, double units, const std::function<void(int)>& body) {
  constexpr int kRounds = 12;
  double best = 0;
  std::vector<double> seconds(static_cast<size_t>(threads));
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<int> ready = 0;
    std::vector<std::thread> others;
    const auto once = [&](int thread) {
      ++ready;
      while (ready < threads) {
      }
      const double start = WallSeconds();
      body(thread);
      seconds[static_cast<size_t>(thread)] = WallSeconds() - start;
    };
    for (int thread = 1; thread < threads; ++thread) others.emplace_back(once, thread);
    once(0);
    for (std::thread& other : others) other.join();
    best = std::max(best, threads * units / *std::max_element(seconds.begin(), seconds.end()));
  }
  return best;
}

uint64_t ReadTiles(const std::byte* from, int64_t bytes) {
  const Tiles tiles;
  for (int64_t i = 0; i + 4096 <= bytes; i += 4096) {
    asm volatile(
        "tileloadd (%0,%1,1), %%tmm0\n"
        "tileloadd 1024(%0,%1,1), %%tmm1\n"
        "tileloadd 2048(%0,%1,1), %%tmm2\n"
        "tileloadd 3072(%0,%1,1), %%tmm3\n" ::"r"(from + i),
        "r"(int64_t{64})
        : "memory");
  }
  return 0;
}
TANDEM_TARGET("avx512f") uint64_t ReadWide(const std::byte* from, int64_t bytes) {
  __m512i sums[4] = {};
  for (int64_t i = 0; i + 256 <= bytes; i += 256) {
    for (int j = 0; j < 4; ++j) {
      _mm_prefetch(reinterpret_cast<const char*>(from) + i + j * 64 + 1024, _MM_HINT_T0);
      sums[j] = _mm512_xor_si512(sums[j], _mm512_loadu_si512(from + i + j * 64));
    }
  }
  uint64_t lanes[32];
  std::memcpy(lanes, sums, sizeof(sums));
  return std::accumulate(std::begin(lanes), std::end(lanes), uint64_t{0});
}
TANDEM_TARGET("avx2") uint64_t ReadNarrow(const std::byte* from, int64_t bytes) {
  __m256i sums[8] = {};
  for (int64_t i = 0; i + 256 <= bytes; i += 256) {
    for (int j = 0; j < 8; ++j) {
      const auto* at = reinterpret_cast<const __m256i*>(from + i + j * 32);
      sums[j] = _mm256_xor_si256(sums[j], _mm256_loadu_si256(at));
    }
  }
  uint64_t lanes[32];
  std::memcpy(lanes, sums, sizeof(sums));
  return std::accumulate(std::begin(lanes), std::end(lanes), uint64_t{0});
}

}  // namespace

double PeakFlops(const std::string& kernel_set, int threads) {
  constexpr double kInstructions = 12.0 * kSteps;
  if (kernel_set == "amx") {
    return BestRate(threads, kInstructions * 16 * 16 * 32 * 2, [](int) { TileLoop(); });
  }
  if (kernel_set == "avx512bf16") {
    return BestRate(threads, kInstructions * 64, [](int) { RunRegisters(PairLoop512); });
  }
  if (kernel_set == "avx2") {
    return BestRate(threads, kInstructions * 16, [](int) { RunRegisters(FmaLoop256); });
  }
  return BestRate(threads, kInstructions * 32, [](int) { RunRegisters(FmaLoop512); });
}

double ReadBandwidth(const std::string& kernel_set, int64_t bytes, int threads) {
  const int64_t part = std::max<int64_t>(bytes / threads / 4096, 1) * 4096;
  const int64_t repeats = std::max<int64_t>(1, (8 << 20) / part);
  testing::AlignedBytes buffer(static_cast<size_t>(part * threads), std::byte{1});
  std::vector<uint64_t (*)(const std::byte*, int64_t)> readers = {ReadNarrow};
  if (__builtin_cpu_supports("avx512f") != 0) readers.push_back(ReadWide);
  if (kernel_set == "amx") readers.push_back(ReadTiles);
  std::atomic<uint64_t> sink = 0;
  double best = 0;
  for (const auto read : readers) {
    const auto body = [&](int thread) {
      for (int64_t i = 0; i < repeats; ++i) sink += read(buffer.data() + thread * part, part);
    };
    best = std::max(best, BestRate(threads, static_cast<double>(part * repeats), body));
  }
  return best;
}

}  // namespace tandem::bench
