// Rotary embedding of the q and k columns, halves convention, and the store of k and v into KV
// blocks. A thread takes 8 pairs (x[i], x[i + head_dim / 2]) of a head, or 8 elements of v.
#include "common/device/cuda/kernel.h"
#include "common/ops/cuda/attention/attention_kernels.h"

namespace tandem::attention {
namespace {

struct Eight {
  float value[8];
};

__device__ __forceinline__ Eight Unpack(const Words4& words) {
  return {{LowBf16(words.x), HighBf16(words.x), LowBf16(words.y), HighBf16(words.y),
           LowBf16(words.z), HighBf16(words.z), LowBf16(words.w), HighBf16(words.w)}};
}

__device__ __forceinline__ Words4 Pack(const Eight& x) {
  return {PackBf16(x.value[0], x.value[1]), PackBf16(x.value[2], x.value[3]),
          PackBf16(x.value[4], x.value[5]), PackBf16(x.value[6], x.value[7])};
}

__device__ __forceinline__ Eight LoadFloats(const float* from) {
  const auto* const words = reinterpret_cast<const Words4*>(from);
  const Words4 low = words[0], high = words[1];
  return {{BitsToFloat(low.x), BitsToFloat(low.y), BitsToFloat(low.z), BitsToFloat(low.w),
           BitsToFloat(high.x), BitsToFloat(high.y), BitsToFloat(high.z), BitsToFloat(high.w)}};
}

// `direction` -1 rotates back.
__global__ void RopeKernel(RopeArgs args, float direction) {
  const Heads& heads = args.heads;
  const int half = heads.head_dim / 2, rotated = heads.heads + heads.kv_heads;
  const int rotations = rotated * (half / 8);
  const int copies = args.kv == nullptr ? 0 : heads.kv_heads * (heads.head_dim / 8);
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t index = thread / (rotations + copies);
  const int item = static_cast<int>(thread % (rotations + copies));
  if (index >= args.row_count) return;
  const RowPlace place = args.rows[index];
  uint16_t* const row = args.x + place.row * args.stride;
  // K of head h in the block; V follows kTileKeys rows later.
  const auto slot = [&](int kv_head) {
    return reinterpret_cast<uint16_t*>(args.kv + place.block * args.block_bytes +
                                       static_cast<int64_t>(kv_head) * 2 *
                                           KeyTileBytes(heads.head_dim)) +
           place.position % kTileKeys * heads.head_dim;
  };
  if (item >= rotations) {
    const int kv_head = (item - rotations) / (heads.head_dim / 8);
    const int at = (item - rotations) % (heads.head_dim / 8) * 8;
    *reinterpret_cast<Words4*>(slot(kv_head) + kTileKeys * heads.head_dim + at) =
        *reinterpret_cast<const Words4*>(row + (rotated + kv_head) * heads.head_dim + at);
    return;
  }
  const int head = item / (half / 8), at = item % (half / 8) * 8;
  auto* const low = reinterpret_cast<Words4*>(row + head * heads.head_dim + at);
  auto* const high = reinterpret_cast<Words4*>(row + head * heads.head_dim + at + half);
  const Eight x = Unpack(*low), y = Unpack(*high);
  const int64_t angle = static_cast<int64_t>(place.position) * half + at;
  const Eight cos = LoadFloats(args.cos + angle), sin = LoadFloats(args.sin + angle);
  Eight turned_x, turned_y;
  TANDEM_UNROLL
  for (int i = 0; i < 8; ++i) {
    const float s = sin.value[i] * direction;
    turned_x.value[i] = fmaf(x.value[i], cos.value[i], -(y.value[i] * s));
    turned_y.value[i] = fmaf(y.value[i], cos.value[i], x.value[i] * s);
  }
  const Words4 packed_x = Pack(turned_x), packed_y = Pack(turned_y);
  *low = packed_x;
  *high = packed_y;
  if (args.kv == nullptr || head < heads.heads) return;
  uint16_t* const key = slot(head - heads.heads) + at;
  *reinterpret_cast<Words4*>(key) = packed_x;
  *reinterpret_cast<Words4*>(key + half) = packed_y;
}

int64_t ItemsPerRow(const RopeArgs& args) {
  const int rotated = args.heads.heads + args.heads.kv_heads;
  const int copied = args.kv == nullptr ? 0 : args.heads.kv_heads;
  return rotated * (args.heads.head_dim / 16) + copied * (args.heads.head_dim / 8);
}

}  // namespace

void RotateAndStore(const RopeArgs& args, CudaStream stream) {
  Launch(&RopeKernel, RopeShape(args.row_count, ItemsPerRow(args)), stream, args, 1.0f);
}

void RotateBack(const RopeArgs& args, CudaStream stream) {
  RopeArgs back = args;
  back.kv = nullptr;
  Launch(&RopeKernel, RopeShape(back.row_count, ItemsPerRow(back)), stream, back, -1.0f);
}

}  // namespace tandem::attention
