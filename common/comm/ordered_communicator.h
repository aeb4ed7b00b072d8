// Collectives of one rank on two threads, in one order: a communication thread carries out the
// submitted work while the caller computes.
#pragma once

#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "common/base/bounded_queue.h"
#include "common/comm/communicator.h"
#include "common/process/threads.h"

namespace tandem {

// For one calling thread, except Abort. The order of calls is the order of Submit, Run and the
// collectives below: ranks that call the same make the same collectives in the same order. A call
// that is not submitted waits for what was, then runs on the calling thread, so that without Submit
// there is no second thread. The thread sleeps while nothing is queued.
class OrderedCommunicator : public Communicator {
 public:
  // May do anything except use the process's ThreadPool, which admits one caller at a time, or call
  // this object. The group that it receives is the underlying one.
  using Work = std::function<absl::Status(Communicator& group)>;
  using Result = std::shared_future<absl::Status>;

  // `group` outlives the object and is used by nothing else meanwhile, except for Abort.
  explicit OrderedCommunicator(Communicator* group) : group_(group) {}
  // Joins the thread. If submitted work is unfinished, aborts the group, because no thread waits
  // for the result.
  ~OrderedCommunicator() override;

  // Queues `work` for the communication thread; what it captures must live until the result is
  // there. Every result becomes ready, because each collective has a deadline. On a GPU the
  // collectives of `work` wait for what was enqueued on the device before Submit, not for what is
  // enqueued after it.
  Result Submit(Work work);
  // Waits for all submitted work, then runs `work` on this thread.
  absl::Status Run(const Work& work);

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
  // Waits for all submitted work.
  Communicator& host() override { return AfterSubmitted().host(); }
  uint64_t Mark() override { return group_->Mark(); }
  void StartAt(uint64_t mark) override { AfterSubmitted().StartAt(mark); }
  void Abort(const std::string& reason) override { group_->Abort(reason); }

 private:
  static constexpr size_t kCapacity = 16;  // beyond it Submit waits
  void Loop();
  // Waits for all submitted work and returns the group.
  Communicator& AfterSubmitted();

  Communicator* const group_;
  Result last_;  // of the newest work; work ends in order
  BoundedQueue<std::packaged_task<absl::Status()>> queue_{kCapacity};
  std::unique_ptr<NamedThread> thread_;  // from the first Submit on
};

}  // namespace tandem
