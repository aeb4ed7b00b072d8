#include "common/comm/hosts/tcp_host_group.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/comm/hosts/chain_sum.h"
#include "common/comm/hosts/copy_flows.h"
#include "common/comm/hosts/direct_flows.h"
#include "common/comm/hosts/group_watch.h"
#include "common/comm/hosts/peer_exchange.h"
#include "common/comm/hosts/staging.h"
#include "common/comm/hosts/tcp_meeting.h"
#include "common/comm/sum_rounds.h"

namespace tandem {
namespace {

// A collective begins with a frame of every rank for every other one; its bytes move once all have
// come. After it no rank has unread bytes but of the next call, so a rank may leave and close its
// connections.
class TcpHostGroup final : public HostGroup {
 public:
  TcpHostGroup(const SharedMemoryGroupOptions& options,
               HostWay way,
               std::vector<std::vector<int>> ranks_by_host,
               std::unique_ptr<GroupWatch> watch,
               std::vector<std::unique_ptr<TcpConnection>> connections)
      : options_(options),
        chain_(UsesChain(way, ranks_by_host)),
        relays_(way != HostWay::kDirect),
        ranks_by_host_(std::move(ranks_by_host)),
        watch_(std::move(watch)),
        exchange_(
            options.rank, options.generation, std::move(connections), watch_.get(), options.clock),
        staging_(std::max<int64_t>(64, options.staging_bytes / 64 * 64)) {}

  int rank() const override { return options_.rank; }
  int world_size() const override { return options_.world_size; }
  absl::Status AllGatherV(const void* mine,
                          const std::vector<int64_t>& bytes_per_rank,
                          void* all) override;
  absl::Status ReduceScatterSums(const std::vector<ScatteredSum>& sums,
                                 Accumulate accumulate) override;
  absl::Status AllReduceSum(double* values, int64_t count) override {
    return AllReduce(values, count);
  }
  absl::Status AllReduceSum(float* values, int64_t count) override {
    return AllReduce(values, count);
  }
  absl::Status Broadcast(void* data, int64_t bytes, int root) override;
  absl::Status Barrier() override { return Start("Barrier", {}).status(); }
  void Abort(const std::string& reason) override {
    (void)watch_->Fail(absl::Status(absl::StatusCode::kAborted, reason));
  }

  absl::Status status() const override { return watch_->status(); }
  absl::Status Fail(const absl::Status& why) override { return watch_->Fail(why); }
  void ShowProgress(uint64_t progress) override { watch_->ShowProgress(progress); }
  uint64_t ProgressOf(int rank) const override { return watch_->ProgressOf(rank); }
  int FindGone(uint64_t wanted) const override { return watch_->FindGone(wanted); }

 private:
  // Waits for all ranks and checks that they make the same call. Returns, by rank, what it takes of
  // an all-gather.
  absl::StatusOr<std::vector<bool>> Start(const char* collective,
                                          const std::vector<int64_t>& sizes,
                                          bool takes = true);
  absl::Status CheckFrames(const CallFrame& mine, const CallFrames& frames);
  template <typename T>
  absl::Status AllReduce(T* values, int64_t count);

  const SharedMemoryGroupOptions options_;
  const bool chain_, relays_;
  const std::vector<std::vector<int>> ranks_by_host_;
  const std::unique_ptr<GroupWatch> watch_;
  PeerExchange exchange_;
  Staging staging_;
  int64_t calls_ = 0;
};

absl::StatusOr<std::vector<bool>> TcpHostGroup::Start(const char* collective,
                                                      const std::vector<int64_t>& sizes,
                                                      bool takes) {
  TANDEM_RETURN_IF_ERROR(watch_->status());
  CallFrame mine;
  mine.number = ++calls_;
  mine.signature = CallSignature(collective, sizes);
  mine.takes = takes ? 1 : 0;
  std::strncpy(mine.collective.data(), collective, mine.collective.size() - 1);
  exchange_.Begin({collective, calls_}, options_.deadline);
  CallFrames frames(mine, options_.world_size);
  TANDEM_RETURN_IF_ERROR(exchange_.Run(frames));
  TANDEM_RETURN_IF_ERROR(CheckFrames(mine, frames));
  std::vector<bool> taking(static_cast<size_t>(options_.world_size), takes);
  for (int rank = 0; rank < options_.world_size; ++rank) {
    if (rank != options_.rank) taking[static_cast<size_t>(rank)] = frames.of(rank).takes != 0;
  }
  return taking;
}

absl::Status TcpHostGroup::CheckFrames(const CallFrame& mine, const CallFrames& frames) {
  for (int rank = 0; rank < options_.world_size; ++rank) {
    if (rank == options_.rank) continue;
    const CallFrame& theirs = frames.of(rank);
    if (theirs.magic != mine.magic || theirs.number != mine.number) {
      return watch_->Fail(Internal("rank {} sent rank {} something else than its call {}", rank,
                                   options_.rank, mine.number));
    }
    if (theirs.signature == mine.signature) continue;
    const std::string name(theirs.collective.data(),
                           strnlen(theirs.collective.data(), theirs.collective.size()));
    return watch_->Fail(
        Internal("call {} is {} on rank {}, but rank {} makes a different call or uses other "
                 "sizes: {}",
                 mine.number, mine.collective.data(), options_.rank, rank, name));
  }
  return absl::OkStatus();
}

absl::Status TcpHostGroup::AllGatherV(const void* mine,
                                      const std::vector<int64_t>& bytes_per_rank,
                                      void* all) {
  TANDEM_ASSIGN_OR_RETURN(std::vector<bool> takes,
                          Start("AllGather", bytes_per_rank, all != nullptr));
  std::vector<std::span<std::byte>> places;
  auto* place = static_cast<std::byte*>(all);
  for (const int64_t bytes : bytes_per_rank) {
    places.emplace_back(place, static_cast<size_t>(bytes));
    if (all != nullptr) place += bytes;
  }
  const auto me = static_cast<size_t>(options_.rank);
  const std::span<std::byte> target = places[me];
  // Only read: it is what others are sent.
  places[me] = {static_cast<std::byte*>(const_cast<void*>(mine)), target.size()};
  GatherFlow flow(GatherPlan(ranks_by_host_, std::move(takes), relays_), options_.rank, places);
  TANDEM_RETURN_IF_ERROR(exchange_.Run(flow));
  if (all != nullptr && !target.empty() && mine != target.data()) {
    std::memcpy(target.data(), mine, target.size());
  }
  return absl::OkStatus();
}

absl::Status TcpHostGroup::ReduceScatterSums(const std::vector<ScatteredSum>& sums,
                                             Accumulate accumulate) {
  TANDEM_RETURN_IF_ERROR(Start("ReduceScatterSum", SizesOf(sums)).status());
  if (chain_) {
    ChainSum flow(sums, accumulate, options_.rank, options_.world_size, &staging_);
    return exchange_.Run(flow);
  }
  DirectSum flow(sums, accumulate, options_.rank, options_.world_size, &staging_);
  return exchange_.Run(flow);
}

template <typename T>
absl::Status TcpHostGroup::AllReduce(T* values, int64_t count) {
  TANDEM_RETURN_IF_ERROR(Start("AllReduceSum", {count, static_cast<int64_t>(sizeof(T))}).status());
  AllSum<T> flow(std::span(values, static_cast<size_t>(count)), options_.rank, options_.world_size,
                 &staging_);
  return exchange_.Run(flow);
}

absl::Status TcpHostGroup::Broadcast(void* data, int64_t bytes, int root) {
  TANDEM_RETURN_IF_ERROR(Start("Broadcast", {bytes, root}).status());
  BroadcastFlow flow({static_cast<std::byte*>(data), static_cast<size_t>(bytes)}, options_.rank,
                     options_.world_size, root);
  return exchange_.Run(flow);
}

}  // namespace

absl::StatusOr<std::unique_ptr<HostGroup>> JoinTcpGroup(const SharedMemoryGroupOptions& options,
                                                        const GroupHosts& hosts) {
  if (options.world_size < 2 || options.rank < 0 || options.rank >= options.world_size) {
    return InvalidArgument("rank {} of {} ranks does not exist", options.rank, options.world_size);
  }
  TANDEM_ASSIGN_OR_RETURN(TcpLinks links, MeetOverTcp(options, hosts));
  TANDEM_ASSIGN_OR_RETURN(auto ranks_by_host, RanksByHost(hosts.members));
  TANDEM_ASSIGN_OR_RETURN(auto watch, GroupWatch::Start(options.rank, std::move(links.watch)));
  return std::make_unique<TcpHostGroup>(options, hosts.way, std::move(ranks_by_host),
                                        std::move(watch), std::move(links.data));
}

}  // namespace tandem
