// A cuBLASLt in host memory whose algorithms violate row invariance in known ways.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/ops/cuda/linear/cublaslt_api.h"

namespace tandem::testing {

enum class LtFault {
  kNone,
  kOtherOrder,   // sums from the last k down: rows are their own, but other bits than kNone's
  kByRows,       // another order below 20 rows
  kByPlace,      // another order in every eighth row
  kByNeighbour,  // another order where the row before begins with a negative number
  kDropsTail,    // leaves out the last 8 of k
  kLeavesOut,    // does not write the last row of a product of an odd number of sixteens
  kRefusesFew,   // InvalidArgument below 20 rows
  kBreaks,       // Internal
};

// Algorithm ids stand for faults: id = 100 * (place in the list) + fault unless set by hand.
class FakeLt final : public LtApi {
 public:
  // What Candidates offers for products of at most `rows` rows (the smallest such entry counts).
  void Offer(int64_t rows, std::vector<LtAlgorithm> algorithms);
  static LtAlgorithm Algorithm(LtFault fault, int number = 0);

  std::string version() const override { return "13.0.0"; }
  absl::StatusOr<std::vector<LtAlgorithm>> Candidates(const Gemm& gemm, int count) override;
  absl::Status Run(const Gemm& gemm, const LtAlgorithm& algorithm, CudaStream stream) override;

  // Of the runs so far, in order.
  std::vector<int> ids_run;
  std::vector<int64_t> rows_run;
  // Rows that candidates were asked for.
  std::vector<int64_t> rows_asked;

 private:
  std::map<int64_t, std::vector<LtAlgorithm>> offers_;
};

}  // namespace tandem::testing
