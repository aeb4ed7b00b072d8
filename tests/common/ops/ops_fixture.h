// Matrices, weights and KV pools with random contents for the ops tests.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "common/ops/backward_ops.h"
#include "common/ops/forward_ops.h"

namespace tandem::testing {

inline constexpr DType kBf16 = DType::kBFloat16;
inline constexpr DType kF32 = DType::kFloat32;

// Whole cache lines, as the memory of weights and activations begins on in a worker.
template <typename T>
struct CacheLineAllocator {
  using value_type = T;
  CacheLineAllocator() = default;
  template <typename U>
  CacheLineAllocator(const CacheLineAllocator<U>&) {}
  T* allocate(size_t count) {
    return static_cast<T*>(::operator new (count * sizeof(T), std::align_val_t{64}));
  }
  void deallocate(T* memory, size_t) { ::operator delete (memory, std::align_val_t{64}); }
  friend bool operator==(const CacheLineAllocator&, const CacheLineAllocator&) { return true; }
};
using AlignedBytes = std::vector<std::byte, CacheLineAllocator<std::byte>>;

// A dense matrix that owns its bytes, in the compute dtype.
class TestMatrix {
 public:
  TestMatrix(DType dtype, int64_t rows, int64_t cols);
  // Uniform in (-scale, scale).
  static TestMatrix Random(
      DType dtype, int64_t rows, int64_t cols, uint32_t seed, float scale = 1.0f);

  DType dtype() const { return dtype_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  float At(int64_t row, int64_t col) const;
  void Set(int64_t row, int64_t col, float value);
  Matrix view() const;
  Matrix Rows(int64_t first, int64_t count) const;
  const void* data() const { return bytes_.data(); }
  bool SameBits(const TestMatrix& other) const { return bytes_ == other.bytes_; }
  // Row `row` here against row `other_row` there, bit by bit.
  bool SameRow(int64_t row, const TestMatrix& other, int64_t other_row) const;

 private:
  DType dtype_;
  int64_t rows_, cols_;
  mutable AlignedBytes bytes_;
};

// A packed weight [n, k] with its source and, if asked for, a bias.
struct TestWeight {
  TestWeight(DType dtype, int64_t n, int64_t k, uint32_t seed, float scale, bool with_bias = false);
  LinearWeight view() const;
  // Packs `source` again after it was changed.
  void Pack();

  TestMatrix source;
  TestMatrix bias;
  bool has_bias;
  AlignedBytes packed;
};

// KV memory of one layer with the blocks of several sequences in random places.
class TestKv {
 public:
  TestKv(const AttentionShape& shape, DType dtype, int64_t num_blocks, uint32_t seed);
  KvLayer view();
  // Takes blocks for `tokens` positions.
  std::vector<int32_t> Take(int64_t tokens);

 private:
  int64_t num_blocks_;
  AlignedBytes bytes_;
  std::vector<int32_t> free_;
};

// Sets TANDEM_CPU_ISA while it lives; "" unsets it.
class ForcedIsa {
 public:
  explicit ForcedIsa(const std::string& name);
  ~ForcedIsa();
};

// Abort when this machine cannot run them.
std::unique_ptr<ForwardOps> MakeForward(DType dtype, int threads = 1);
std::unique_ptr<BackwardOps> MakeBackward(DType dtype, int threads = 1);
// The kernel sets of a numerics class ("seq" or "amx32") that this machine can run.
std::vector<std::string> RunnableIsas(const std::string& numerics);
// Of both classes, seq first.
std::vector<std::string> RunnableIsas();

// Row i of the result is row rows[i] of `from`.
TestMatrix Gather(const TestMatrix& from, const std::vector<int64_t>& rows);

// The cos and sin of theta = 10000.
RopeTable TestRope(int64_t head_dim, int64_t max_positions);

// Of weights * values, in double.
inline double WeightedSum(const TestMatrix& weights, const TestMatrix& values) {
  double sum = 0;
  for (int64_t i = 0; i < values.rows(); ++i) {
    for (int64_t j = 0; j < values.cols(); ++j) {
      sum += double{weights.At(i, j)} * double{values.At(i, j)};
    }
  }
  return sum;
}

}  // namespace tandem::testing
