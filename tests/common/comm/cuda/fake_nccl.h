// NCCL among threads of one process, over host memory: a call runs once every rank of the group has
// made it. Sums have the order of NCCL's ring 0, 1, ..., n-1.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "common/comm/cuda/nccl_api.h"

namespace tandem::testing {

// Thread-safe, one object for all ranks.
class FakeNccl final : public NcclApi {
 public:
  // Work that is given from now on is never done.
  void Hang();
  // Every communicator meets `why` from now on, as after a link broke.
  void Break(absl::Status why);
  // The next call of the method `name` on any rank fails, once.
  void FailCall(const std::string& name, absl::Status why);
  int live() const;     // communicators neither destroyed nor aborted
  int aborted() const;  // communicators so far
  // By method, and what a group of sums consists of: "sum for all", "sum for one".
  std::vector<std::string> calls() const;
  bool single_channel() const;  // what the last Join asked for

  int version() const override { return 22809; }
  absl::StatusOr<NcclId> NewId() override;
  absl::StatusOr<NcclComm> Join(const NcclMember& member) override;
  absl::StatusOr<bool> Ready(NcclComm comm) override;
  absl::Status AllGather(
      const void* mine, void* all, int64_t bytes, NcclComm comm, CudaStream stream) override;
  absl::Status Broadcast(
      void* data, int64_t bytes, int root, NcclComm comm, CudaStream stream) override;
  absl::Status Reduce(const std::vector<NcclSum>& sums, NcclComm comm, CudaStream stream) override;
  absl::Status Transfer(const std::vector<NcclTransfer>& transfers,
                        NcclComm comm,
                        CudaStream stream) override;
  absl::Status Finalize(NcclComm comm) override;
  absl::Status Destroy(NcclComm comm) override;
  absl::Status Abort(NcclComm comm) override;

 private:
  // What a rank has given: sums and transfers are what everything is made of.
  struct Part {
    bool given = false;
    std::vector<NcclSum> sums;
    std::vector<NcclTransfer> transfers;
  };
  struct Group {
    int joined = 0;
    std::vector<Part> parts;  // by rank
  };
  struct Member {
    Group* group = nullptr;
    int rank = 0;
  };
  absl::Status Called(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(groups_mutex_);
  absl::Status Give(NcclComm comm, CudaStream stream, Part part)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(groups_mutex_);
  static absl::Status Do(Group& group);
  static absl::Status Sum(const Group& group, size_t index);
  static absl::Status Deliver(Group& group, int to, const NcclTransfer& receive);
  void End(NcclComm comm) ABSL_EXCLUSIVE_LOCKS_REQUIRED(groups_mutex_);

  mutable Mutex groups_mutex_;
  std::map<std::string, Group> groups_ ABSL_GUARDED_BY(groups_mutex_);  // by id
  std::map<NcclComm, std::unique_ptr<Member>> members_ ABSL_GUARDED_BY(groups_mutex_);
  std::map<std::string, absl::Status> failures_ ABSL_GUARDED_BY(groups_mutex_);
  std::vector<std::string> calls_ ABSL_GUARDED_BY(groups_mutex_);
  absl::Status broken_ ABSL_GUARDED_BY(groups_mutex_);
  bool hangs_ ABSL_GUARDED_BY(groups_mutex_) = false;
  bool single_channel_ ABSL_GUARDED_BY(groups_mutex_) = false;
  int ids_ ABSL_GUARDED_BY(groups_mutex_) = 0;
  int aborted_ ABSL_GUARDED_BY(groups_mutex_) = 0;
};

}  // namespace tandem::testing
