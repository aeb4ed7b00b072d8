// Notes which collective a rank is in, or was in last, so that other threads can tell.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/comm/communicator.h"
#include "common/types/worker_load.h"

namespace tandem {

// Thread-safe. Begin and End take turns.
class CollectiveLog {
 public:
  explicit CollectiveLog(Clock& clock) : clock_(clock) {}

  // `name`: a string literal.
  void Begin(const char* name, int64_t bytes);
  void End();
  // The collective that runs, else the last one.
  CollectiveNote Last() const;

 private:
  Clock& clock_;
  mutable Mutex log_mutex_;
  const char* name_ ABSL_GUARDED_BY(log_mutex_) = "";
  int64_t bytes_ ABSL_GUARDED_BY(log_mutex_) = 0;
  int64_t count_ ABSL_GUARDED_BY(log_mutex_) = 0;
  bool running_ ABSL_GUARDED_BY(log_mutex_) = false;
  Instant since_ ABSL_GUARDED_BY(log_mutex_);
};

// A group whose collectives are noted. Those of another host() group are not.
class WatchedCommunicator final : public Communicator {
 public:
  // `log` must outlive the object.
  WatchedCommunicator(std::unique_ptr<Communicator> group, CollectiveLog& log)
      : group_(std::move(group)), log_(log) {}

  int rank() const override { return group_->rank(); }
  int world_size() const override { return group_->world_size(); }
  absl::Status AllGatherV(const void* mine,
                          const std::vector<int64_t>& bytes_per_rank,
                          void* all) override;
  absl::Status ReduceScatterSums(const std::vector<ScatteredSum>& sums,
                                 Accumulate accumulate) override;
  absl::Status AllReduceSum(double* values, int64_t count) override;
  absl::Status AllReduceSum(float* values, int64_t count) override;
  absl::Status Broadcast(void* data, int64_t bytes, int root) override;
  absl::Status Barrier() override;
  Communicator& host() override;
  uint64_t Mark() override { return group_->Mark(); }
  void StartAt(uint64_t mark) override { group_->StartAt(mark); }
  void Abort(const std::string& reason) override { group_->Abort(reason); }

 private:
  const std::unique_ptr<Communicator> group_;
  CollectiveLog& log_;
};

}  // namespace tandem
