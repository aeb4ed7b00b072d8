#include "common/weights/digest_blocks.h"

#include <cstring>

#include "common/weights/digest_keys.h"

// GCC 12 takes the deliberately undefined operands inside some of its own intrinsics for
// uninitialized variables.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

namespace tandem {
namespace {

constexpr int64_t kBlockBytes = 64;

// Distance of the prefetch: the sums keep too few loads in flight to hide the latency of memory.
constexpr int64_t kPrefetchBytes = 2048;

uint64_t SumBaseline(int p, const unsigned char* block, uint32_t index) {
  uint64_t sum = 0;
  for (int i = 0; i < kDigestWords; i += 2) {
    uint32_t words[2];
    memcpy(words, block + 4 * i, sizeof(words));
    const uint32_t left = words[0] + kDigestKeys.start[p][i] + index * kDigestKeys.step[p][i];
    const uint32_t right =
        words[1] + kDigestKeys.start[p][i + 1] + index * kDigestKeys.step[p][i + 1];
    sum += static_cast<uint64_t>(left) * right;
  }
  return sum;
}

BlockSums Baseline(const unsigned char* data, int64_t index, int64_t blocks) {
  BlockSums sums;
  for (int64_t b = 0; b < blocks; ++b, data += kBlockBytes) {
    const auto block = static_cast<uint32_t>(index + b);
    sums.Add({SumBaseline(0, data, block), SumBaseline(1, data, block)});
  }
  return sums;
}

__attribute__((target("avx512f"))) BlockSums Avx512(const unsigned char* data,
                                                    int64_t index,
                                                    int64_t blocks) {
  __m512i key[2], step[2], sum[2];
  for (int p = 0; p < 2; ++p) {
    step[p] = _mm512_load_si512(kDigestKeys.step[p]);
    key[p] =
        _mm512_add_epi32(_mm512_load_si512(kDigestKeys.start[p]),
                         _mm512_mullo_epi32(step[p], _mm512_set1_epi32(static_cast<int>(index))));
    sum[p] = _mm512_setzero_si512();
  }
  for (int64_t b = 0; b < blocks; ++b, data += kBlockBytes) {
    _mm_prefetch(reinterpret_cast<const char*>(data) + kPrefetchBytes, _MM_HINT_T0);
    const __m512i words = _mm512_loadu_si512(data);
#pragma GCC unroll 2
    for (int p = 0; p < 2; ++p) {
      const __m512i keyed = _mm512_add_epi32(words, key[p]);
      const __m512i product = _mm512_mul_epu32(keyed, _mm512_srli_epi64(keyed, 32));
      sum[p] = _mm512_add_epi64(sum[p], product);
      key[p] = _mm512_add_epi32(key[p], step[p]);
    }
  }
  // Added by hand, as the reducing intrinsic adds signed numbers, which must not overflow.
  alignas(64) uint64_t lanes[2][8];
  BlockSums sums;
  for (int p = 0; p < 2; ++p) _mm512_store_si512(lanes[p], sum[p]);
  for (int lane = 0; lane < 8; ++lane) sums.Add({lanes[0][lane], lanes[1][lane]});
  return sums;
}

__attribute__((target("avx2"), always_inline)) inline __m256i Load(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

__attribute__((target("avx2"), always_inline)) inline uint64_t Lanes(__m256i sum) {
  alignas(32) uint64_t lanes[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sum);
  return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}

__attribute__((target("avx2"))) BlockSums Avx2(const unsigned char* data,
                                               int64_t index,
                                               int64_t blocks) {
  __m256i key[4], step[4], sum[4];  // halves of the first sum's, then of the second's
  for (int i = 0; i < 4; ++i) {
    step[i] = Load(kDigestKeys.step[i / 2] + 8 * (i % 2));
    key[i] =
        _mm256_add_epi32(Load(kDigestKeys.start[i / 2] + 8 * (i % 2)),
                         _mm256_mullo_epi32(step[i], _mm256_set1_epi32(static_cast<int>(index))));
    sum[i] = _mm256_setzero_si256();
  }
  for (int64_t b = 0; b < blocks; ++b, data += kBlockBytes) {
    _mm_prefetch(reinterpret_cast<const char*>(data) + kPrefetchBytes, _MM_HINT_T0);
    const __m256i words[2] = {Load(data), Load(data + 32)};
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m256i keyed = _mm256_add_epi32(words[i % 2], key[i]);
      const __m256i product = _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32));
      sum[i] = _mm256_add_epi64(sum[i], product);
      key[i] = _mm256_add_epi32(key[i], step[i]);
    }
  }
  return {Lanes(sum[0]) + Lanes(sum[1]), Lanes(sum[2]) + Lanes(sum[3])};
}

}  // namespace

const DigestKernels kDigestAvx512 = {"avx512f", Avx512};
const DigestKernels kDigestAvx2 = {"avx2", Avx2};
const DigestKernels kDigestBaseline = {"baseline", Baseline};

const std::vector<const DigestKernels*>& RunnableDigestKernels() {
  static const std::vector<const DigestKernels*> runnable = [] {
    std::vector<const DigestKernels*> kernels;
    if (__builtin_cpu_supports("avx512f") != 0) kernels.push_back(&kDigestAvx512);
    if (__builtin_cpu_supports("avx2") != 0) kernels.push_back(&kDigestAvx2);
    kernels.push_back(&kDigestBaseline);
    return kernels;
  }();
  return runnable;
}

}  // namespace tandem
