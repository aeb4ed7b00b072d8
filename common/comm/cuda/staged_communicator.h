// Collectives of ranks whose devices NCCL does not connect, because two share a GPU or the machine
// has no NCCL. Data goes through pinned host memory and a group over it.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/base/clock.h"
#include "common/comm/communicator.h"
#include "common/comm/cuda/collective_stream.h"

namespace tandem {

struct StagedOptions {
  CudaApi* cuda = nullptr;
  int device = 0;
  CudaStream compute = nullptr;  // of the device; collectives wait for what it has been given
  absl::Duration deadline = absl::Seconds(600);  // of every wait for the device
  int64_t staging_bytes = 8 << 20;  // equal on all ranks; pinned memory is four times as much
  Clock* clock = &RealClock();
};

// Communicator's contract. Sums have the order of the host group and therefore the CPU's bits. Data
// goes in chunks: while one is exchanged, the device copies the next. Mark and Abort: any thread.
class StagedCommunicator final : public Communicator {
 public:
  static absl::StatusOr<std::unique_ptr<StagedCommunicator>> Create(
      std::unique_ptr<Communicator> host, const StagedOptions& options);
  ~StagedCommunicator() override;

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
  // Host memory of a chunk: `out` is this rank's summand, `in` the exchanged data or the result.
  struct Slot {
    std::byte* out = nullptr;
    std::byte* in = nullptr;
    CudaEvent loaded = nullptr;
  };
  // The three steps of a chunk: load and store enqueue copies on the stream, exchange runs on the
  // host.
  struct Steps {
    std::function<absl::Status(const Slot&slot, int64_t chunk)> load, exchange, store;
  };

  StagedCommunicator(std::unique_ptr<Communicator> host, const StagedOptions& options)
      : options_(options), host_(std::move(host)) {}
  absl::Status Prepare();
  absl::Status Carry(int64_t chunks, const Steps& steps);
  absl::Status Carried(int64_t chunks, const Steps& steps);
  absl::Status Load(const Slot& slot, int64_t chunk, const Steps& steps);
  template <typename Done>
  absl::Status WaitFor(const Done& done);
  absl::Status Copy(void* to, const void* from, int64_t bytes);

  const StagedOptions options_;
  const std::unique_ptr<Communicator> host_;
  std::unique_ptr<CollectiveStream> stream_;
  std::array<Slot, 2> slots_;
};

}  // namespace tandem
