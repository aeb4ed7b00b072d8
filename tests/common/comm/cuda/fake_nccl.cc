#include "tests/common/comm/cuda/fake_nccl.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/status.h"
#include "tests/emulator/late_streams.h"

namespace tandem::testing {
namespace {

using TransferWay = NcclTransfer::Way;
constexpr int kTaken = -1;  // the peer of a send that was received

}  // namespace

void FakeNccl::Hang() {
  const MutexLock lock(groups_mutex_);
  hangs_ = true;
}
void FakeNccl::Break(absl::Status why) {
  const MutexLock lock(groups_mutex_);
  broken_ = std::move(why);
}
void FakeNccl::FailCall(const std::string& name, absl::Status why) {
  const MutexLock lock(groups_mutex_);
  failures_[name] = std::move(why);
}
int FakeNccl::live() const {
  const MutexLock lock(groups_mutex_);
  return static_cast<int>(members_.size());
}
int FakeNccl::aborted() const {
  const MutexLock lock(groups_mutex_);
  return aborted_;
}
std::vector<std::string> FakeNccl::calls() const {
  const MutexLock lock(groups_mutex_);
  return calls_;
}
bool FakeNccl::single_channel() const {
  const MutexLock lock(groups_mutex_);
  return single_channel_;
}

absl::Status FakeNccl::Called(const std::string& name) {
  calls_.push_back(name);
  const auto failure = failures_.find(name);
  if (failure == failures_.end()) return broken_;
  absl::Status why = failure->second;
  failures_.erase(failure);
  return why;
}

absl::StatusOr<NcclId> FakeNccl::NewId() {
  const MutexLock lock(groups_mutex_);
  TANDEM_RETURN_IF_ERROR(Called("NewId"));
  NcclId id;
  std::snprintf(id.bytes.data(), id.bytes.size(), "group %d", ++ids_);
  return id;
}

absl::StatusOr<NcclComm> FakeNccl::Join(const NcclMember& member) {
  const MutexLock lock(groups_mutex_);
  TANDEM_RETURN_IF_ERROR(Called("Join"));
  Group& group = groups_[member.id.bytes.data()];
  group.parts.resize(static_cast<size_t>(member.world_size));
  ++group.joined;
  single_channel_ = member.single_channel;
  auto made = std::make_unique<Member>(Member{&group, member.rank});
  const auto comm = reinterpret_cast<NcclComm>(made.get());
  members_[comm] = std::move(made);
  return comm;
}

absl::StatusOr<bool> FakeNccl::Ready(NcclComm comm) {
  const MutexLock lock(groups_mutex_);
  TANDEM_RETURN_IF_ERROR(broken_);
  const auto found = members_.find(comm);
  if (found == members_.end()) return Internal("no such communicator");
  const Group& group = *found->second->group;
  if (group.joined < static_cast<int>(group.parts.size())) return false;
  return !group.parts[static_cast<size_t>(found->second->rank)].given;
}

absl::Status FakeNccl::Give(NcclComm comm, CudaStream stream, Part part) {
  emulator::DoLate(stream);  // what was given before is done before
  const auto found = members_.find(comm);
  if (found == members_.end()) return Internal("no such communicator");
  Group& group = *found->second->group;
  Part& mine = group.parts[static_cast<size_t>(found->second->rank)];
  if (mine.given) return Internal("work is given before the last is on the stream");
  mine = std::move(part);
  mine.given = true;
  const bool all = std::all_of(group.parts.begin(), group.parts.end(),
                               [](const Part& one) { return one.given; });
  if (!all || hangs_) return absl::OkStatus();
  const absl::Status done = Do(group);
  if (!done.ok()) broken_ = done;
  return absl::OkStatus();
}

absl::Status FakeNccl::Do(Group& group) {
  for (const Part& part : group.parts) {
    if (part.sums.size() != group.parts[0].sums.size()) return Internal("ranks differ in sums");
  }
  for (size_t index = 0; index < group.parts[0].sums.size(); ++index) {
    TANDEM_RETURN_IF_ERROR(Sum(group, index));
  }
  for (size_t rank = 0; rank < group.parts.size(); ++rank) {
    for (const NcclTransfer& transfer : group.parts[rank].transfers) {
      if (transfer.way == TransferWay::kSend) continue;
      TANDEM_RETURN_IF_ERROR(Deliver(group, static_cast<int>(rank), transfer));
    }
  }
  for (Part& part : group.parts) {
    if (!part.transfers.empty() &&
        std::any_of(part.transfers.begin(), part.transfers.end(), [](const NcclTransfer& one) {
          return one.way == TransferWay::kSend && one.peer != kTaken;
        })) {
      return Internal("a send has no receive");
    }
    part = {};
  }
  return absl::OkStatus();
}

absl::Status FakeNccl::Sum(const Group& group, size_t index) {
  const NcclSum& first = group.parts[0].sums[index];
  const auto world = static_cast<int>(group.parts.size());
  std::vector<float> sum(static_cast<size_t>(first.count));
  for (int step = 1; step <= world; ++step) {
    const NcclSum& from = group.parts[static_cast<size_t>((first.root + step) % world)].sums[index];
    if (from.root != first.root || from.count != first.count) return Internal("ranks differ");
    for (size_t i = 0; i < sum.size(); ++i) {
      sum[i] = step == 1 ? from.from[i] : sum[i] + from.from[i];
    }
  }
  std::copy(sum.begin(), sum.end(), group.parts[static_cast<size_t>(first.root)].sums[index].to);
  return absl::OkStatus();
}

absl::Status FakeNccl::Deliver(Group& group, int to, const NcclTransfer& receive) {
  std::vector<NcclTransfer>& sends = group.parts[static_cast<size_t>(receive.peer)].transfers;
  const auto sent = std::find_if(sends.begin(), sends.end(), [&](const NcclTransfer& one) {
    return one.way == TransferWay::kSend && one.peer == to;
  });
  if (sent == sends.end() || sent->bytes != receive.bytes) {
    return Internal("rank {} has no send of {} bytes to rank {}", receive.peer, receive.bytes, to);
  }
  std::memmove(receive.data, sent->data, static_cast<size_t>(receive.bytes));
  sent->peer = kTaken;
  return absl::OkStatus();
}

absl::Status FakeNccl::AllGather(
    const void* mine, void* all, int64_t bytes, NcclComm comm, CudaStream stream) {
  const MutexLock lock(groups_mutex_);
  TANDEM_RETURN_IF_ERROR(Called("AllGather"));
  const Member& me = *members_.at(comm);
  Part part;
  for (int rank = 0; rank < static_cast<int>(me.group->parts.size()); ++rank) {
    part.transfers.push_back({TransferWay::kSend, const_cast<void*>(mine), bytes, rank});
  }
  // After all sends: a rank's own piece may be the one it sends.
  for (int rank = 0; rank < static_cast<int>(me.group->parts.size()); ++rank) {
    part.transfers.push_back(
        {TransferWay::kReceive, static_cast<std::byte*>(all) + rank * bytes, bytes, rank});
  }
  return Give(comm, stream, std::move(part));
}

absl::Status FakeNccl::Broadcast(
    void* data, int64_t bytes, int root, NcclComm comm, CudaStream stream) {
  const MutexLock lock(groups_mutex_);
  TANDEM_RETURN_IF_ERROR(Called("Broadcast"));
  const Member& me = *members_.at(comm);
  Part part;
  for (int rank = 0; rank < static_cast<int>(me.group->parts.size()); ++rank) {
    if (me.rank == root && rank != root)
      part.transfers.push_back({TransferWay::kSend, data, bytes, rank});
  }
  if (me.rank != root) part.transfers.push_back({TransferWay::kReceive, data, bytes, root});
  return Give(comm, stream, std::move(part));
}

absl::Status FakeNccl::Reduce(const std::vector<NcclSum>& sums, NcclComm comm, CudaStream stream) {
  const MutexLock lock(groups_mutex_);
  TANDEM_RETURN_IF_ERROR(Called("Reduce"));
  const Member& me = *members_.at(comm);
  Part part;
  for (const NcclSum& sum : sums) {
    const bool for_all = sum.root == NcclSum::kEveryRank;
    calls_.emplace_back(for_all ? "sum for all" : "sum for one");
    if (!for_all) part.sums.push_back(sum);
    for (int root = 0; for_all && root < static_cast<int>(me.group->parts.size()); ++root) {
      float* const to = root == me.rank ? sum.to : nullptr;
      part.sums.push_back({sum.from + root * sum.count, to, sum.count, root});
    }
  }
  return Give(comm, stream, std::move(part));
}

absl::Status FakeNccl::Transfer(const std::vector<NcclTransfer>& transfers,
                                NcclComm comm,
                                CudaStream stream) {
  const MutexLock lock(groups_mutex_);
  TANDEM_RETURN_IF_ERROR(Called("Transfer"));
  Part part;
  part.transfers = transfers;
  return Give(comm, stream, std::move(part));
}

void FakeNccl::End(NcclComm comm) { members_.erase(comm); }

absl::Status FakeNccl::Finalize(NcclComm /*comm*/) {
  const MutexLock lock(groups_mutex_);
  return Called("Finalize");
}
absl::Status FakeNccl::Destroy(NcclComm comm) {
  const MutexLock lock(groups_mutex_);
  calls_.emplace_back("Destroy");
  End(comm);
  return absl::OkStatus();
}
absl::Status FakeNccl::Abort(NcclComm comm) {
  const MutexLock lock(groups_mutex_);
  calls_.emplace_back("Abort");
  ++aborted_;
  End(comm);
  return absl::OkStatus();
}

}  // namespace tandem::testing
