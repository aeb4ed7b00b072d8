// Elementary functions and loads for kernels: the same arithmetic as kernels/vec_elements.h, so
// that an elementwise op has the CPU's bits and does not depend on a GPU's own expf. Included by
// kernels.
#pragma once

#include "common/device/cuda/kernel.h"

namespace tandem {

// exp for x <= 0, relative error below 2^-23 * 1.2; below -87 it is 0 exactly. NaN stays NaN.
__device__ __forceinline__ float ExpOfNegative(float x) {
  const float magic = 12582912.0f + 127.0f;
  const float shifted = fmaf(x, 1.44269504f, magic);
  const float n = shifted - magic;
  const float r = fmaf(-n, -2.12194440e-4f, fmaf(-n, 0.693359375f, x));
  float p = 1.9875691500e-4f;
  p = fmaf(p, r, 1.3981999507e-3f);
  p = fmaf(p, r, 8.3334519073e-3f);
  p = fmaf(p, r, 4.1665795894e-2f);
  p = fmaf(p, r, 1.6666665459e-1f);
  p = fmaf(p, r, 5.0000001201e-1f);
  p = fmaf(p, r * r, r + 1.0f);
  return x < -87.0f ? 0.0f : p * BitsToFloat(FloatToBits(shifted) << 23);
}

// 1 / (1 + exp(-x)), without overflow on either side.
__device__ __forceinline__ float Sigmoid(float x) {
  const float e = ExpOfNegative(x < 0.0f ? x : -x);
  const float d = 1.0f + e;  // in [1, 2]
  float y = fmaf(fmaf(32.0f / 99.0f, d, -144.0f / 99.0f), d, 210.0f / 99.0f);
  y = fmaf(fmaf(-d, y, 1.0f), y, y);
  y = fmaf(fmaf(-d, y, 1.0f), y, y);
  return (x < 0.0f ? e : 1.0f) * y;
}

// A weight rounded to bf16 with the bits of the host's ToBf16, because digested and stored bits
// must be the same. PackBf16 differs only for NaN, whose bits a GPU's conversion drops.
__device__ __forceinline__ uint16_t WeightBits(float value) {
  const uint32_t bits = FloatToBits(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40u : rounded);
}

// Eight bf16 from 16 bytes, as floats; they are rounded once when stored.
struct Floats8 {
  float of[8];
};
__device__ __forceinline__ Floats8 Widen(const Words4& words) {
  return {{LowBf16(words.x), HighBf16(words.x), LowBf16(words.y), HighBf16(words.y),
           LowBf16(words.z), HighBf16(words.z), LowBf16(words.w), HighBf16(words.w)}};
}
__device__ __forceinline__ Words4 Round(const Floats8& x) {
  return {PackBf16(x.of[0], x.of[1]), PackBf16(x.of[2], x.of[3]), PackBf16(x.of[4], x.of[5]),
          PackBf16(x.of[6], x.of[7])};
}
__device__ __forceinline__ Words4 LoadWords(const void* from) {
  return *static_cast<const Words4*>(from);
}
__device__ __forceinline__ void StoreWords(void* to, const Words4& words) {
  *static_cast<Words4*>(to) = words;
}
__device__ __forceinline__ Floats8 LoadFloats8(const float* from) {
  const Words4 low = LoadWords(from), high = LoadWords(from + 4);
  return {{BitsToFloat(low.x), BitsToFloat(low.y), BitsToFloat(low.z), BitsToFloat(low.w),
           BitsToFloat(high.x), BitsToFloat(high.y), BitsToFloat(high.z), BitsToFloat(high.w)}};
}
__device__ __forceinline__ void StoreFloats8(float* to, const Floats8& x) {
  StoreWords(
      to, {FloatToBits(x.of[0]), FloatToBits(x.of[1]), FloatToBits(x.of[2]), FloatToBits(x.of[3])});
  StoreWords(to + 4, {FloatToBits(x.of[4]), FloatToBits(x.of[5]), FloatToBits(x.of[6]),
                      FloatToBits(x.of[7])});
}

}  // namespace tandem
