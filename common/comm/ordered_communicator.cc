#include "common/comm/ordered_communicator.h"

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "common/base/progress.h"
#include "common/process/cores.h"

namespace tandem {

OrderedCommunicator::~OrderedCommunicator() {
  if (last_.valid() && last_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    Abort(fmt::format("rank {} ended with collectives under way", rank()));
  }
  queue_.Close();
  if (thread_ != nullptr) thread_->Join();
}

OrderedCommunicator::Result OrderedCommunicator::Submit(Work work) {
  if (thread_ == nullptr) thread_ = std::make_unique<NamedThread>("comm", [this] { Loop(); });
  const uint64_t mark = group_->Mark();
  std::packaged_task<absl::Status()> task([group = group_, mark, work = std::move(work)] {
    group->StartAt(mark);
    absl::Status status = work(*group);
    group->StartAt(0);
    return status;
  });
  last_ = task.get_future().share();
  queue_.Push(std::move(task));
  return last_;
}

absl::Status OrderedCommunicator::Run(const Work& work) { return work(AfterSubmitted()); }

void OrderedCommunicator::Loop() {
  // A new thread inherits its creator's pinning, and the caller may be pinned to the core on which
  // it computes meanwhile.
  UnpinThisThread();
  while (auto task = queue_.Pop()) {
    const WorkStep step("collective");
    (*task)();
  }
}

Communicator& OrderedCommunicator::AfterSubmitted() {
  const OutsideWait wait;  // the thread of the collectives is watched itself
  if (last_.valid()) last_.wait();
  return *group_;
}

absl::Status OrderedCommunicator::AllGatherV(const void* mine,
                                             const std::vector<int64_t>& bytes_per_rank,
                                             void* all) {
  return AfterSubmitted().AllGatherV(mine, bytes_per_rank, all);
}

absl::Status OrderedCommunicator::ReduceScatterSums(const std::vector<ScatteredSum>& sums,
                                                    Accumulate accumulate) {
  return AfterSubmitted().ReduceScatterSums(sums, accumulate);
}

absl::Status OrderedCommunicator::AllReduceSum(double* values, int64_t count) {
  return AfterSubmitted().AllReduceSum(values, count);
}

absl::Status OrderedCommunicator::AllReduceSum(float* values, int64_t count) {
  return AfterSubmitted().AllReduceSum(values, count);
}

absl::Status OrderedCommunicator::Broadcast(void* data, int64_t bytes, int root) {
  return AfterSubmitted().Broadcast(data, bytes, root);
}

absl::Status OrderedCommunicator::Barrier() { return AfterSubmitted().Barrier(); }

}  // namespace tandem
