// The rollout of gpu_sync_bench, a separate process on the same GPU: the receiving end of a sync,
// without an engine. It serves the calls of RolloutService that a sync and its check make.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>
#include <grpcpp/channel.h>
#include <sys/types.h>

#include "common/device/cuda/cuda_api.h"

namespace tandem::testing {

// A stream that is none of the context's: the emulator's first one does its work late, which only
// its own process can make it do. Before a context is made.
absl::Status SkipLateStream(CudaApi& cuda);

// Serves at unix:DIRECTORY/rollout.sock until it is killed, which its parent's death does too.
// Writes a byte to descriptor kReadyDescriptor once it does. `size`: Qwen3's.
absl::Status RunBenchRollout(CudaApi* cuda, const std::string& size, const std::string& directory);
inline constexpr int kReadyDescriptor = 3;

// The parent's view; kills it when destroyed.
class BenchRollout {
 public:
  // Starts this program again, with the arguments "rollout SIZE DIRECTORY". Unavailable: it ended
  // instead of serving; its words are on stderr.
  static absl::StatusOr<std::unique_ptr<BenchRollout>> Start(const std::string& size,
                                                             const std::string& directory);
  ~BenchRollout();
  std::shared_ptr<grpc::Channel> channel() const { return channel_; }
  // Seconds of the last update's copy loop: from its first bucket's call until all of its rows were
  // stored. FailedPrecondition: it does not serve `version`.
  absl::StatusOr<double> CopySeconds(int64_t version);

 private:
  BenchRollout() = default;
  pid_t process_ = 0;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace tandem::testing
