// One GPU per rank, through NCCL.
//
// Order of sums. NCCL's ring passes a rank's piece around the ring, starting at the rank's
// successor: with the ring 0, 1, ..., n-1, the sum for rank r is ((v[r+1] + v[r+2]) + ... ) + v[r],
// ranks modulo n. As long as all channels use one ring (NcclOptions::single_channel ensures it),
// the order depends only on that ring, which NCCL derives from the world size and the machine's
// links. Two ranks get the bits of the CPU's ascending order, three or more do not. If channels
// have rings of their own, the tensors of a call, which NCCL sees as one group, decide which
// channel sums which elements. Runs on machines of one kind repeat bit for bit.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/base/clock.h"
#include "common/comm/communicator.h"
#include "common/comm/cuda/collective_stream.h"
#include "common/comm/cuda/nccl_api.h"

namespace tandem {

struct NcclOptions {
  CudaApi* cuda = nullptr;
  int device = 0;
  CudaStream compute = nullptr;  // of the device; collectives wait for what it has been given
  NcclApi* nccl = nullptr;
  int64_t group_generation = 0;                  // for messages
  absl::Duration deadline = absl::Seconds(600);  // of forming the group and of every call
  bool single_channel = false;
  int64_t scratch_bytes = 64 << 20;  // of device memory, for sums that are added (kAdd)
  Clock* clock = &RealClock();
};

// Communicator's contract; a call returns when the device has done its part. Before a collective
// the ranks meet on the host, which finds ranks that do not come or make another call. Then this
// rank watches its device, NCCL and the host group. DeadlineExceeded names this rank, the
// collective, its number and the ranks whose device has not reached it. Any failure ends NCCL's
// communicator on every rank. Mark and Abort: any thread.
class NcclCommunicator final : public Communicator {
 public:
  // Collective over `host`. Takes ownership of `host` and ends that group if it fails.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Create(std::unique_ptr<HostGroup> host,
                                                                  const NcclOptions& options);
  ~NcclCommunicator() override;

  int rank() const override { return host_->rank(); }
  int world_size() const override { return host_->world_size(); }
  absl::Status AllGatherV(const void* mine,
                          const std::vector<int64_t>& bytes_per_rank,
                          void* all) override;
  absl::Status ReduceScatterSums(const std::vector<ScatteredSum>& sums,
                                 Accumulate accumulate) override;
  absl::Status AllReduceSum(double* values, int64_t count) override {
    return host_->AllReduceSum(values, count);
  }
  absl::Status AllReduceSum(float* values, int64_t count) override {
    return host_->AllReduceSum(values, count);
  }
  absl::Status Broadcast(void* data, int64_t bytes, int root) override;
  absl::Status Barrier() override { return host_->Barrier(); }
  Communicator& host() override { return *host_; }
  uint64_t Mark() override { return stream_->Mark(); }
  void StartAt(uint64_t mark) override { stream_->StartAt(mark); }
  void Abort(const std::string& reason) override { host_->Abort(reason); }

 private:
  NcclCommunicator(std::unique_ptr<HostGroup> host, const NcclOptions& options)
      : options_(options), host_(std::move(host)) {}
  absl::Status Form();
  // Checks that all ranks make the same call, and returns which ranks take its result.
  absl::StatusOr<std::vector<bool>> Meet(const char* collective,
                                         const std::vector<int64_t>& sizes,
                                         bool takes);
  // Lets `issue` enqueue the work and waits until the device has done it.
  absl::Status Carry(const std::function<absl::Status()>& issue);
  // Waits until the work of a call to NCCL is on the stream, and returns the call's status.
  absl::Status Issued(const absl::Status& status);
  template <typename Done>
  absl::Status WaitFor(const Done& done);
  // Looks for failures of the other ranks while this rank waits.
  absl::Status LookAround();
  absl::Status TooLate() const;
  absl::Status Fail(const absl::Status& why);

  const NcclOptions options_;
  const std::unique_ptr<HostGroup> host_;
  std::unique_ptr<CollectiveStream> stream_;
  float* scratch_ = nullptr;
  NcclComm comm_ = nullptr;  // null before it is formed and after a failure
  const char* collective_ = "";
  uint64_t number_ = 0;  // of the collective
  Instant deadline_;
};

}  // namespace tandem
