// One Generate call: events go out as fast as the peer takes them, in the order they appeared.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>

#include <grpcpp/grpcpp.h>

#include "rollout_worker/generation/generator.h"
#include "tandem/v1/rollout.grpc.pb.h"

namespace tandem {

// Filled by the engine thread, emptied by gRPC's. Keeps itself alive until gRPC is done with it.
// What waits to be sent is bounded by the request: n samples of max_tokens tokens.
class GenerateStream final : public grpc::ServerWriteReactor<v1::GenerateEvent>,
                             public GenerationSink {
 public:
  static std::shared_ptr<GenerateStream> Make();

  void OnTokens(const TokenDelta& delta) override;
  void OnFinished(const Sample& sample) override;
  void OnEnd(const absl::Status& status) override;
  bool cancelled() const override { return cancelled_; }

  void OnWriteDone(bool ok) override;
  void OnCancel() override { cancelled_ = true; }
  void OnDone() override;

 private:
  GenerateStream() = default;
  void Push(v1::GenerateEvent event);

  std::mutex mutex_;                      // events_, ended_, status_
  std::deque<v1::GenerateEvent> events_;  // the first is being written, if any
  bool ended_ = false;
  grpc::Status status_;
  std::atomic<bool> cancelled_{false};
  std::shared_ptr<GenerateStream> self_;  // until OnDone
};

}  // namespace tandem
