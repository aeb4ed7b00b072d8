// A host group with one real rank: the others make the same calls at once.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/comm/communicator.h"

namespace tandem::testing {

class LonelyHost final : public HostGroup {
 public:
  LonelyHost(int rank, int world_size) : rank_(rank), progress_(static_cast<size_t>(world_size)) {}

  // What becomes of the others, as this rank sees it.
  void SetProgress(int rank, uint64_t progress) { progress_[static_cast<size_t>(rank)] = progress; }
  void SetGone(int rank) { gone_ = rank; }

  int rank() const override { return rank_; }
  int world_size() const override { return static_cast<int>(progress_.size()); }
  absl::Status AllGatherV(const void* mine,
                          const std::vector<int64_t>& bytes_per_rank,
                          void* all) override {
    auto* at = static_cast<std::byte*>(all);
    for (const int64_t bytes : bytes_per_rank) {
      std::memcpy(at, mine, static_cast<size_t>(bytes));
      at += bytes;
    }
    return status_;
  }
  absl::Status ReduceScatterSums(const std::vector<ScatteredSum>& /*sums*/,
                                 Accumulate /*accumulate*/) override {
    return Internal("a device's sum came to the host");
  }
  absl::Status AllReduceSum(double* /*values*/, int64_t /*count*/) override { return status_; }
  absl::Status AllReduceSum(float* /*values*/, int64_t /*count*/) override { return status_; }
  absl::Status Broadcast(void* /*data*/, int64_t /*bytes*/, int /*root*/) override {
    return status_;
  }
  absl::Status Barrier() override { return status_; }
  void Abort(const std::string& reason) override {
    (void)Fail(absl::Status(absl::StatusCode::kAborted, reason));
  }

  absl::Status status() const override { return status_; }
  absl::Status Fail(const absl::Status& why) override {
    if (status_.ok()) status_ = why;
    return status_;
  }
  void ShowProgress(uint64_t progress) override { SetProgress(rank_, progress); }
  uint64_t ProgressOf(int rank) const override { return progress_[static_cast<size_t>(rank)]; }
  int FindGone(uint64_t wanted) const override {
    return gone_ >= 0 && ProgressOf(gone_) < wanted ? gone_ : -1;
  }

 private:
  const int rank_;
  std::vector<uint64_t> progress_;
  int gone_ = -1;
  absl::Status status_;
};

}  // namespace tandem::testing
