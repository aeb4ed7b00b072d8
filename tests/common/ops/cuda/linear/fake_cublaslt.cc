// A libcublasLt.so.13 in host memory that checks the calls to the library: it computes what the
// descriptors describe, column-major as documented, with plain loops, and refuses what the caller
// should never ask for.
#include <cstdlib>
#include <cstring>

#include <cublasLt.h>

namespace {

// What the opaque structures hold here.
struct Product {
  int32_t transposed_a = 0, transposed_b = 0;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  int32_t bias_type = -1;
  const void* bias = nullptr;
};
struct Layout {
  int64_t rows = 0, cols = 0, stride = 0;
  cudaDataType_t type = CUDA_R_32F;
};
struct Preference {
  uint64_t workspace = 1;
  uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t alignment[4] = {256, 256, 256, 256};
};

template <typename T, typename Opaque>
T& As(Opaque* opaque) {
  static_assert(sizeof(T) <= sizeof(Opaque));
  return *reinterpret_cast<T*>(opaque);
}

template <typename T>
cublasStatus_t Take(T& to, const void* from, size_t bytes) {
  if (bytes != sizeof(to)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

// Nothing of the repository is linked in.
float FromBf16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}
uint16_t ToBf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

float At(const void* data, const Layout& layout, int64_t row, int64_t col, bool transposed) {
  const int64_t at = transposed ? row * layout.stride + col : col * layout.stride + row;
  if (layout.type == CUDA_R_32F) return static_cast<const float*>(data)[at];
  return FromBf16(static_cast<const uint16_t*>(data)[at]);
}

int handle_of_all = 0;

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (std::getenv("FAKE_CUBLASLT_NO_MEMORY") != nullptr) return CUBLAS_STATUS_ALLOC_FAILED;
  *handle = reinterpret_cast<cublasLtHandle_t>(&handle_of_all);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : "another";
}
size_t cublasLtGetVersion() { return 130203; }

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc,
                                               size_t size,
                                               cublasComputeType_t compute,
                                               cudaDataType_t scale) {
  As<Product>(desc) = Product();
  const bool fp32 = compute == CUBLAS_COMPUTE_32F && scale == CUDA_R_32F;
  return fp32 && size == sizeof(*desc) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* from,
                                              size_t bytes) {
  Product& product = As<Product>(desc);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return Take(product.transposed_a, from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return Take(product.transposed_b, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return Take(product.epilogue, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return Take(product.bias, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return Take(product.bias_type, from, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}
cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout,
                                                 size_t size,
                                                 cudaDataType type,
                                                 uint64_t rows,
                                                 uint64_t cols,
                                                 int64_t stride) {
  As<Layout>(layout) = {static_cast<int64_t>(rows), static_cast<int64_t>(cols), stride, type};
  const bool fits = size == sizeof(*layout) && stride >= static_cast<int64_t>(rows);
  return fits ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference,
                                                     size_t size) {
  As<Preference>(preference) = Preference();
  return size == sizeof(*preference) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t opaque,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* from,
                                                    size_t bytes) {
  Preference& preference = As<Preference>(opaque);
  const auto alignment = [&](int index) { return Take(preference.alignment[index], from, bytes); };
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return Take(preference.workspace, from, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return Take(preference.reduction, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return alignment(0);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return alignment(1);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return alignment(2);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return alignment(3);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

// Three algorithms: plain, one whose state is an error, and a split. None for 7 columns of c.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t,
                                              cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t opaque,
                                              int count,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  const Preference& preference = As<Preference>(opaque);
  for (const uint32_t alignment : preference.alignment) {
    if (alignment != 16) return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (preference.workspace != 0 || preference.reduction != CUBLASLT_REDUCTION_SCHEME_NONE) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (As<Layout>(d).cols == 7) return CUBLAS_STATUS_NOT_SUPPORTED;
  *found = 0;
  for (uint64_t i = 0; i < 3 && *found < count; ++i) {
    cublasLtMatmulHeuristicResult_t& result = results[(*found)++];
    result = {};
    result.algo.data[0] = 66 + i;
    result.algo.data[1] = i == 2 ? 4 : 1;
    result.workspaceSize = i == 2 ? 1024 : 0;
    result.state = i == 1 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void* to,
                                                    size_t bytes,
                                                    size_t* written) {
  uint64_t value = 0;
  if (attribute == CUBLASLT_ALGO_CONFIG_ID) value = algo->data[0];
  if (attribute == CUBLASLT_ALGO_CONFIG_TILE_ID) value = 20;
  if (attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM) value = algo->data[1];
  if (bytes != sizeof(int32_t)) return CUBLAS_STATUS_INVALID_VALUE;
  *written = bytes;
  std::memcpy(to, &value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t,
                              cublasLtMatmulDesc_t desc,
                              const void* alpha,
                              const void* a,
                              cublasLtMatrixLayout_t a_desc,
                              const void* b,
                              cublasLtMatrixLayout_t b_desc,
                              const void* beta,
                              const void* c,
                              cublasLtMatrixLayout_t c_desc,
                              void* d,
                              cublasLtMatrixLayout_t d_desc,
                              const cublasLtMatmulAlgo_t* algo,
                              void* workspace,
                              size_t workspace_bytes,
                              cudaStream_t) {
  const Product& product = As<Product>(desc);
  const Layout &of_a = As<Layout>(a_desc), &of_b = As<Layout>(b_desc), &of_d = As<Layout>(d_desc);
  const int64_t terms = product.transposed_a ? of_a.rows : of_a.cols;
  const bool fit = (product.transposed_a ? of_a.cols : of_a.rows) == of_d.rows &&
                   (product.transposed_b ? of_b.rows : of_b.cols) == of_d.cols &&
                   (product.transposed_b ? of_b.cols : of_b.rows) == terms && c == d &&
                   c_desc == d_desc && workspace == nullptr && workspace_bytes == 0;
  if (!fit || algo->data[0] != 66) return CUBLAS_STATUS_INVALID_VALUE;
  const bool has_bias = product.epilogue == CUBLASLT_EPILOGUE_BIAS;
  if (has_bias && product.bias_type != CUDA_R_16BF) return CUBLAS_STATUS_INVALID_VALUE;
  for (int64_t col = 0; col < of_d.cols; ++col) {
    for (int64_t row = 0; row < of_d.rows; ++row) {
      float sum = 0;
      for (int64_t k = 0; k < terms; ++k) {
        sum += At(a, of_a, row, k, product.transposed_a != 0) *
               At(b, of_b, k, col, product.transposed_b != 0);
      }
      sum *= *static_cast<const float*>(alpha);
      const float before = *static_cast<const float*>(beta);
      if (before != 0.0f) sum += before * At(c, of_d, row, col, false);
      // The bias is a vector of d's rows.
      if (has_bias) sum += FromBf16(static_cast<const uint16_t*>(product.bias)[row]);
      const int64_t at = col * of_d.stride + row;
      if (of_d.type == CUDA_R_32F) {
        static_cast<float*>(d)[at] = sum;
      } else {
        static_cast<uint16_t*>(d)[at] = ToBf16(sum);
      }
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
