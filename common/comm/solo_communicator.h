// A group of one: gathers and sums nothing.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "common/comm/communicator.h"

namespace tandem {

class SoloCommunicator : public Communicator {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  absl::Status AllGatherV(const void* mine,
                          const std::vector<int64_t>& bytes_per_rank,
                          void* all) override;
  absl::Status ReduceScatterSums(const std::vector<ScatteredSum>& sums,
                                 Accumulate accumulate) override;
  absl::Status AllReduceSum(double* values, int64_t count) override;
  absl::Status AllReduceSum(float* values, int64_t count) override;
  absl::Status Broadcast(void* data, int64_t bytes, int root) override;
  absl::Status Barrier() override;
  void Abort(const std::string& reason) override;

 private:
  absl::Status status();
  std::mutex mutex_;
  absl::Status status_;
};

}  // namespace tandem
