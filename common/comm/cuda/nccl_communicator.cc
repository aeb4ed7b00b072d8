#include "common/comm/cuda/nccl_communicator.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/status.h"
#include "common/comm/cuda/add.h"
#include "common/comm/shared_memory_communicator.h"
#include "common/comm/sum_rounds.h"
#include "common/device/cuda/cuda_api.h"

namespace tandem {
namespace {

// How long the shutdown of a group may take once the work of all ranks is done.
constexpr absl::Duration kFarewell = absl::Seconds(10);

// Progress that a rank publishes when its device has reached collective `number`, and finished it.
uint64_t Reached(uint64_t number) { return 2 * number - 1; }
uint64_t Finished(uint64_t number) { return 2 * number; }

int64_t TotalOf(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

bool AllEqual(const std::vector<int64_t>& sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [&](int64_t size) { return size == sizes[0]; });
}

// Appends the NCCL reductions of a part; `to` receives this rank's sum.
void AppendSums(const SumPart& part,
                const ScatteredSum& sum,
                int rank,
                float* to,
                std::vector<NcclSum>& group) {
  const std::vector<int64_t>& counts = sum.counts_per_rank;
  if (AllEqual(counts) && part.length == counts[0]) {
    group.push_back({sum.full, to, part.length, NcclSum::kEveryRank});
    return;
  }
  for (int root = 0; root < std::ssize(counts); ++root) {
    const int64_t length = LengthOn(part, sum, root);
    if (length == 0) continue;
    const float* const from = sum.full + PieceOffset(sum, root) + part.begin;
    group.push_back({from, root == rank ? to : nullptr, length, root});
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Create(
    std::unique_ptr<HostGroup> host, const NcclOptions& options) {
  std::unique_ptr<NcclCommunicator> made(new NcclCommunicator(std::move(host), options));
  const absl::Status formed = made->Form();
  if (!formed.ok()) return made->Fail(formed);
  return made;
}

absl::Status NcclCommunicator::Form() {
  collective_ = "the start of NCCL";
  deadline_ = options_.clock->Now() + options_.deadline;
  TANDEM_ASSIGN_OR_RETURN(
      stream_, CollectiveStream::Create(options_.cuda, options_.device, options_.compute));
  TANDEM_ASSIGN_OR_RETURN(std::byte* const scratch, options_.cuda->Malloc(options_.scratch_bytes));
  scratch_ = reinterpret_cast<float*>(scratch);
  NcclMember member;
  member.rank = rank();
  member.world_size = world_size();
  member.single_channel = options_.single_channel;
  if (rank() == 0) {
    TANDEM_ASSIGN_OR_RETURN(member.id, options_.nccl->NewId());
  }
  TANDEM_RETURN_IF_ERROR(host_->Broadcast(&member.id, sizeof(member.id), 0));
  TANDEM_ASSIGN_OR_RETURN(comm_, options_.nccl->Join(member));
  TANDEM_RETURN_IF_ERROR(Issued(absl::OkStatus()));
  return host_->Barrier();
}

NcclCommunicator::~NcclCommunicator() {
  if (stream_ != nullptr) (void)options_.cuda->UseDevice(options_.device);
  if (comm_ != nullptr) {
    const absl::Status finalized = options_.nccl->Finalize(comm_);
    const auto ended = [&] { return options_.nccl->Ready(comm_); };
    const auto patient = [] { return absl::OkStatus(); };
    const Instant deadline = options_.clock->Now() + kFarewell;
    const bool ready = finalized.ok() && PollUntil(*options_.clock, deadline, ended, patient).ok();
    (void)(ready ? options_.nccl->Destroy(comm_) : options_.nccl->Abort(comm_));
  }
  if (scratch_ != nullptr) (void)options_.cuda->Free(reinterpret_cast<std::byte*>(scratch_));
}

absl::StatusOr<std::vector<bool>> NcclCommunicator::Meet(const char* collective,
                                                         const std::vector<int64_t>& sizes,
                                                         bool takes) {
  struct Entry {
    uint64_t signature;
    uint64_t takes;
  };
  collective_ = collective;
  ++number_;
  const Entry mine = {CallSignature(collective, sizes), takes ? 1u : 0u};
  std::vector<Entry> all(static_cast<size_t>(world_size()));
  const absl::Status met = host_->AllGather(&mine, sizeof(mine), all.data());
  // The host group has failed on every rank already, with the first reason; NCCL's communicator
  // must still be ended here.
  if (!met.ok()) return Fail(met);
  std::vector<bool> takers;
  for (int other = 0; other < world_size(); ++other) {
    const Entry& entry = all[static_cast<size_t>(other)];
    if (entry.signature != mine.signature) {
      return Fail(
          Internal("collective {} is {} on rank {}, but rank {} makes a different call or "
                   "uses other sizes",
                   number_, collective_, rank(), other));
    }
    takers.push_back(entry.takes != 0);
  }
  return takers;
}

absl::Status NcclCommunicator::Carry(const std::function<absl::Status()>& issue) {
  deadline_ = options_.clock->Now() + options_.deadline;
  absl::Status status = stream_->Begin();
  if (status.ok()) status = issue();
  if (status.ok()) status = stream_->End();
  if (status.ok()) status = WaitFor([&] { return stream_->Finished(); });
  if (!status.ok()) return Fail(status);
  host_->ShowProgress(Finished(number_));
  return absl::OkStatus();
}

absl::Status NcclCommunicator::Issued(const absl::Status& status) {
  TANDEM_RETURN_IF_ERROR(status);
  return WaitFor([&] { return options_.nccl->Ready(comm_); });
}

template <typename Done>
absl::Status NcclCommunicator::WaitFor(const Done& done) {
  const absl::Status waited =
      PollUntil(*options_.clock, deadline_, done, [&] { return LookAround(); });
  if (!absl::IsDeadlineExceeded(waited) || !host_->status().ok()) return waited;
  return TooLate();
}

absl::Status NcclCommunicator::LookAround() {
  TANDEM_RETURN_IF_ERROR(host_->status());
  if (number_ == 0) return absl::OkStatus();  // the group is being formed
  TANDEM_ASSIGN_OR_RETURN(const bool reached, stream_->Reached());
  if (reached) host_->ShowProgress(Reached(number_));
  TANDEM_RETURN_IF_ERROR(options_.nccl->Ready(comm_).status());
  const int gone = host_->FindGone(Finished(number_));
  if (gone < 0) return absl::OkStatus();
  return MakeStatus(absl::StatusCode::kUnavailable,
                    "rank {} is gone: rank {} was waiting for it in {} (collective {}, generation "
                    "{})",
                    gone, rank(), collective_, number_, options_.group_generation);
}

absl::Status NcclCommunicator::TooLate() const {
  std::string late;
  for (int other = 0; number_ > 0 && other < world_size(); ++other) {
    if (host_->ProgressOf(other) >= Reached(number_)) continue;
    late += (late.empty() ? "" : ", ") + std::to_string(other);
  }
  std::string why = "every device has reached it: NCCL or a link between the GPUs hangs";
  if (number_ == 0)
    why = "a rank has not joined, or NCCL cannot connect to it (NCCL_DEBUG=INFO says why)";
  if (!late.empty()) {
    why = fmt::format(
        "the device of rank {} has not reached it: its earlier work hangs or takes longer", late);
  }
  return MakeStatus(absl::StatusCode::kDeadlineExceeded,
                    "rank {} of {} waited {} for {} (collective {}, generation {}); {}", rank(),
                    world_size(), absl::FormatDuration(options_.deadline), collective_, number_,
                    options_.group_generation, why);
}

absl::Status NcclCommunicator::Fail(const absl::Status& why) {
  // NCCL's own errors do not say whether the device is lost; querying an event does.
  absl::Status own = why;
  if (!IsDeviceLost(own) && stream_ != nullptr) own = stream_->Finished().status();
  const bool lost = IsDeviceLost(own);
  // The other ranks are told that this rank is gone, as its process is about to end.
  const absl::Status first =
      host_->Fail(lost ? MakeStatus(absl::StatusCode::kUnavailable, "rank {} lost its device: {}",
                                    rank(), std::string(own.message()))
                       : why);
  if (comm_ != nullptr) (void)options_.nccl->Abort(std::exchange(comm_, nullptr));
  return lost ? own : first;
}

absl::Status NcclCommunicator::AllGatherV(const void* mine,
                                          const std::vector<int64_t>& bytes_per_rank,
                                          void* all) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<bool> takes,
                          Meet("AllGatherV", bytes_per_rank, all != nullptr));
  if (TotalOf(bytes_per_rank) == 0) return absl::OkStatus();
  const auto me = static_cast<size_t>(rank());
  const int64_t my_bytes = bytes_per_rank[me];
  if (AllEqual(bytes_per_rank) && std::find(takes.begin(), takes.end(), false) == takes.end()) {
    return Carry([&] {
      return Issued(options_.nccl->AllGather(mine, all, my_bytes, comm_, stream_->stream()));
    });
  }
  std::vector<NcclTransfer> transfers;
  auto* place = static_cast<std::byte*>(all);
  std::byte* my_place = nullptr;
  for (size_t other = 0; other < takes.size(); ++other) {
    const auto peer = static_cast<int>(other);
    if (other == me) my_place = place;
    if (other != me && takes[other] && my_bytes > 0) {
      transfers.push_back({NcclTransfer::Way::kSend, const_cast<void*>(mine), my_bytes, peer});
    }
    if (other != me && all != nullptr && bytes_per_rank[other] > 0) {
      transfers.push_back({NcclTransfer::Way::kReceive, place, bytes_per_rank[other], peer});
    }
    if (all != nullptr) place += bytes_per_rank[other];
  }
  return Carry([&] {
    if (my_place != nullptr && my_bytes > 0 && my_place != mine) {
      TANDEM_RETURN_IF_ERROR(options_.cuda->Copy(my_place, mine, my_bytes, stream_->stream()));
    }
    return Issued(options_.nccl->Transfer(transfers, comm_, stream_->stream()));
  });
}

absl::Status NcclCommunicator::ReduceScatterSums(const std::vector<ScatteredSum>& sums,
                                                 Accumulate accumulate) {
  const std::vector<int64_t> sizes = SizesOf(sums);
  TANDEM_RETURN_IF_ERROR(Meet("ReduceScatterSum", sizes, true).status());
  if (TotalOf(sizes) == 0) return absl::OkStatus();
  const bool adds = accumulate == Accumulate::kAdd;
  // Sums that overwrite need no scratch, but are cut into the same rounds, because other ranks may
  // accumulate.
  const int64_t room = options_.scratch_bytes / static_cast<int64_t>(sizeof(float));
  return Carry([&] {
    for (const SumRound& round : RoundsOf(sums, room)) {
      std::vector<NcclSum> group;
      for (const SumPart& part : round) {
        const ScatteredSum& sum = sums[part.sum];
        const bool has = LengthOn(part, sum, rank()) > 0;
        float* const place = has ? sum.mine + part.begin : sum.mine;
        AppendSums(part, sum, rank(), adds ? scratch_ + part.offset : place, group);
      }
      TANDEM_RETURN_IF_ERROR(Issued(options_.nccl->Reduce(group, comm_, stream_->stream())));
      for (const SumPart& part : round) {
        const ScatteredSum& sum = sums[part.sum];
        const int64_t length = LengthOn(part, sum, rank());
        if (!adds || length == 0) continue;
        AddFloats(sum.mine + part.begin, scratch_ + part.offset, length, stream_->stream());
      }
    }
    return options_.cuda->LastError();
  });
}

absl::Status NcclCommunicator::Broadcast(void* data, int64_t bytes, int root) {
  TANDEM_RETURN_IF_ERROR(Meet("Broadcast", {bytes, root}, true).status());
  if (bytes == 0) return absl::OkStatus();
  return Carry([&] {
    return Issued(options_.nccl->Broadcast(data, bytes, root, comm_, stream_->stream()));
  });
}

}  // namespace tandem
