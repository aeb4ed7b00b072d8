// LtApi through NVIDIA's library. cuBLASLt's matrices are column-major: our row-major c = a b is
// its cᵀ = bᵀ aᵀ, so its A is our b, its B our a, and rows and columns are exchanged.
#include <utility>

#include <cublasLt.h>

#include "common/base/status.h"
#include "common/device/cuda/library_search.h"
#include "common/ops/cuda/linear/cublaslt_api.h"

namespace tandem {
namespace {

// Looks up functions one after another; the status is that of the first one that is missing.
class Finder {
 public:
  explicit Finder(void* library) : library_(library) {}
  template <typename Function>
  void Find(const char* name, Function* function) {
    const absl::StatusOr<void*> found = FindFunction(library_, name);
    status_.Update(Annotate(found.status(), name));
    if (found.ok()) *function = reinterpret_cast<Function>(*found);
  }
  const absl::Status& status() const { return status_; }

 private:
  void* const library_;
  absl::Status status_;
};

// The library's functions that are used, by its own names without their prefix.
struct LtTable {
  decltype(&cublasLtCreate) Create;
  decltype(&cublasLtDestroy) Destroy;
  decltype(&cublasLtGetStatusName) GetStatusName;
  decltype(&cublasLtGetVersion) GetVersion;
  decltype(&cublasLtMatmul) Matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) MatmulAlgoGetHeuristic;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) MatmulAlgoConfigGetAttribute;
  decltype(&cublasLtMatmulDescInit_internal) MatmulDescInit;
  decltype(&cublasLtMatmulDescSetAttribute) MatmulDescSetAttribute;
  decltype(&cublasLtMatrixLayoutInit_internal) MatrixLayoutInit;
  decltype(&cublasLtMatmulPreferenceInit_internal) MatmulPreferenceInit;
  decltype(&cublasLtMatmulPreferenceSetAttribute) MatmulPreferenceSetAttribute;

  absl::Status Load(void* library) {
    Finder finder(library);
    finder.Find("cublasLtCreate", &Create);
    finder.Find("cublasLtDestroy", &Destroy);
    finder.Find("cublasLtGetStatusName", &GetStatusName);
    finder.Find("cublasLtGetVersion", &GetVersion);
    finder.Find("cublasLtMatmul", &Matmul);
    finder.Find("cublasLtMatmulAlgoGetHeuristic", &MatmulAlgoGetHeuristic);
    finder.Find("cublasLtMatmulAlgoConfigGetAttribute", &MatmulAlgoConfigGetAttribute);
    finder.Find("cublasLtMatmulDescInit_internal", &MatmulDescInit);
    finder.Find("cublasLtMatmulDescSetAttribute", &MatmulDescSetAttribute);
    finder.Find("cublasLtMatrixLayoutInit_internal", &MatrixLayoutInit);
    finder.Find("cublasLtMatmulPreferenceInit_internal", &MatmulPreferenceInit);
    finder.Find("cublasLtMatmulPreferenceSetAttribute", &MatmulPreferenceSetAttribute);
    return finder.status();
  }

  absl::Status Check(cublasStatus_t status, const char* call) const {
    if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
    auto code = absl::StatusCode::kInternal;
    if (status == CUBLAS_STATUS_INVALID_VALUE || status == CUBLAS_STATUS_NOT_SUPPORTED) {
      code = absl::StatusCode::kInvalidArgument;
    }
    if (status == CUBLAS_STATUS_ALLOC_FAILED) code = absl::StatusCode::kResourceExhausted;
    return MakeStatus(code, "{}: {}", call, GetStatusName(status));
  }
};

// A product in the library's terms.
struct Description {
  cublasLtMatmulDescOpaque_t product;
  cublasLtMatrixLayoutOpaque_t a, b, c;

  absl::Status Fill(const LtTable& lt, const Gemm& gemm);
};

absl::Status Description::Fill(const LtTable& lt, const Gemm& gemm) {
  TANDEM_RETURN_IF_ERROR(
      lt.Check(lt.MatmulDescInit(&product, sizeof(product), CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "cublasLtMatmulDescInit"));
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    return lt.Check(lt.MatmulDescSetAttribute(&product, attribute, &value, sizeof(value)),
                    "cublasLtMatmulDescSetAttribute");
  };
  const auto lay = [&](cublasLtMatrixLayoutOpaque_t* layout, cudaDataType_t type, int64_t rows,
                       int64_t cols, int64_t stride) {
    return lt.Check(lt.MatrixLayoutInit(layout, sizeof(*layout), type, static_cast<uint64_t>(rows),
                                        static_cast<uint64_t>(cols), stride),
                    "cublasLtMatrixLayoutInit");
  };
  // In memory order: a column for the library is a row for us.
  const bool turned_a = gemm.kind == GemmKind::kForward, turned_b = gemm.kind == GemmKind::kWeights;
  const int32_t operation_a = turned_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  const int32_t operation_b = turned_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  TANDEM_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_TRANSA, operation_a));
  TANDEM_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_TRANSB, operation_b));
  if (gemm.bias != nullptr) {
    const uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    TANDEM_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue));
    TANDEM_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, gemm.bias));
    const int32_t type = CUDA_R_16BF;
    TANDEM_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type));
  }
  TANDEM_RETURN_IF_ERROR(
      lay(&a, CUDA_R_16BF, turned_a ? gemm.k : gemm.n, turned_a ? gemm.n : gemm.k, gemm.b_stride));
  TANDEM_RETURN_IF_ERROR(
      lay(&b, CUDA_R_16BF, turned_b ? gemm.m : gemm.k, turned_b ? gemm.k : gemm.m, gemm.a_stride));
  return lay(&c, gemm.output == GemmOutput::kBf16 ? CUDA_R_16BF : CUDA_R_32F, gemm.n, gemm.m,
             gemm.c_stride);
}

class LtLibrary final : public LtApi {
 public:
  LtLibrary(const LtTable& table, cublasLtHandle_t handle) : lt_(table), handle_(handle) {}
  ~LtLibrary() override { lt_.Destroy(handle_); }

  std::string version() const override {
    const size_t number = lt_.GetVersion();  // 130101 is 13.1.1
    return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
  }
  absl::StatusOr<std::vector<LtAlgorithm>> Candidates(const Gemm& gemm, int count) override;
  absl::Status Run(const Gemm& gemm, const LtAlgorithm& algorithm, CudaStream stream) override;

 private:
  absl::StatusOr<LtAlgorithm> Read(const cublasLtMatmulHeuristicResult_t& result) const;

  const LtTable lt_;
  const cublasLtHandle_t handle_;
};

absl::StatusOr<LtAlgorithm> LtLibrary::Read(const cublasLtMatmulHeuristicResult_t& result) const {
  LtAlgorithm algorithm;
  static_assert(sizeof(algorithm.opaque) == sizeof(result.algo));
  std::copy(std::begin(result.algo.data), std::end(result.algo.data), algorithm.opaque.begin());
  algorithm.workspace_bytes = static_cast<int64_t>(result.workspaceSize);
  const std::pair<cublasLtMatmulAlgoConfigAttributes_t, int*> attributes[] = {
      {CUBLASLT_ALGO_CONFIG_ID, &algorithm.id},
      {CUBLASLT_ALGO_CONFIG_TILE_ID, &algorithm.tile},
      {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &algorithm.split_k},
      {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &algorithm.reduction}};
  for (const auto& [attribute, value] : attributes) {
    size_t written = 0;
    TANDEM_RETURN_IF_ERROR(lt_.Check(
        lt_.MatmulAlgoConfigGetAttribute(&result.algo, attribute, value, sizeof(*value), &written),
        "cublasLtMatmulAlgoConfigGetAttribute"));
  }
  return algorithm;
}

absl::StatusOr<std::vector<LtAlgorithm>> LtLibrary::Candidates(const Gemm& gemm, int count) {
  Description description;
  TANDEM_RETURN_IF_ERROR(description.Fill(lt_, gemm));
  cublasLtMatmulPreferenceOpaque_t preference;
  TANDEM_RETURN_IF_ERROR(lt_.Check(lt_.MatmulPreferenceInit(&preference, sizeof(preference)),
                                   "cublasLtMatmulPreferenceInit"));
  // Without workspace and reduction, blocks have no way to share a sum.
  const uint64_t workspace_bytes = 0;
  const uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_NONE, alignment = 16;
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    return lt_.Check(
        lt_.MatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)),
        "cublasLtMatmulPreferenceSetAttribute");
  };
  TANDEM_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes));
  TANDEM_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reduction));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    TANDEM_RETURN_IF_ERROR(set(attribute, alignment));
  }
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(count));
  int found = 0;
  const cublasStatus_t status = lt_.MatmulAlgoGetHeuristic(
      handle_, &description.product, &description.a, &description.b, &description.c, &description.c,
      &preference, count, results.data(), &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED)
    found = 0;  // the library knows no algorithm
  else
    TANDEM_RETURN_IF_ERROR(lt_.Check(status, "cublasLtMatmulAlgoGetHeuristic"));
  std::vector<LtAlgorithm> algorithms;
  for (int i = 0; i < found; ++i) {
    if (results[static_cast<size_t>(i)].state != CUBLAS_STATUS_SUCCESS) continue;
    TANDEM_ASSIGN_OR_RETURN(LtAlgorithm one, Read(results[static_cast<size_t>(i)]));
    algorithms.push_back(one);
  }
  return algorithms;
}

absl::Status LtLibrary::Run(const Gemm& gemm, const LtAlgorithm& algorithm, CudaStream stream) {
  Description description;
  TANDEM_RETURN_IF_ERROR(description.Fill(lt_, gemm));
  cublasLtMatmulAlgo_t algo;
  std::copy(algorithm.opaque.begin(), algorithm.opaque.end(), std::begin(algo.data));
  const float alpha = 1.0f, beta = gemm.output == GemmOutput::kFloatAdd ? 1.0f : 0.0f;
  return lt_.Check(lt_.Matmul(handle_, &description.product, &alpha, gemm.b, &description.a, gemm.a,
                              &description.b, &beta, gemm.c, &description.c, gemm.c, &description.c,
                              &algo, nullptr, 0, stream),
                   "cublasLtMatmul");
}

}  // namespace

absl::StatusOr<std::unique_ptr<LtApi>> OpenLt() {
  TANDEM_ASSIGN_OR_RETURN(void* const library, OpenLibrary("libcublasLt.so.13", "nvidia/cu13/lib"));
  LtTable table;
  TANDEM_RETURN_IF_ERROR(table.Load(library));
  cublasLtHandle_t handle = nullptr;
  if (const absl::Status created = table.Check(table.Create(&handle), "cublasLtCreate");
      !created.ok()) {
    if (absl::IsResourceExhausted(created)) return created;
    return FailedPrecondition("{}: cuBLASLt finds no device it can use",
                              std::string(created.message()));
  }
  return std::make_unique<LtLibrary>(table, handle);
}

}  // namespace tandem
