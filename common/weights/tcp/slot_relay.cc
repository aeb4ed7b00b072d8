#include "common/weights/tcp/slot_relay.h"

#include <algorithm>
#include <utility>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/status.h"

namespace tandem {
namespace {

// The next rollout has just answered the trainer.
constexpr absl::Duration kConnectTime = absl::Seconds(10);

// One frame of each slot, and the last one.
size_t FramesAtOnce(const StreamTarget& next) { return static_cast<size_t>(next.shape.slots) + 1; }

}  // namespace

SlotRelay::SlotRelay(StreamTarget next,
                     TcpSecurity security,
                     absl::Duration timeout,
                     std::function<void(int slot)> forwarded)
    : next_(std::move(next)),
      security_(std::move(security)),
      timeout_(timeout),
      forwarded_(std::move(forwarded)),
      frames_(FramesAtOnce(next_)),
      thread_("weights on", [this] { Run(); }) {}

SlotRelay::~SlotRelay() {
  {
    const MutexLock lock(connection_mutex_);
    stopping_ = true;
    if (connection_ != nullptr) connection_->Shutdown();
  }
  frames_.Close();
  thread_.Join();
}

void SlotRelay::Forward(int slot, const std::byte* data, int64_t bytes) {
  frames_.Push({{next_.update_number, sequence_++, slot, bytes}, data});
}

void SlotRelay::Finish() {
  frames_.Push({{next_.update_number, sequence_++, kLastFrame, 0}, nullptr});
  frames_.Close();
  const OutsideWait wait;
  thread_.Join();
}

absl::Status SlotRelay::Connect() {
  TANDEM_ASSIGN_OR_RETURN(auto connection,
                          DialSlots(next_, security_, std::min(timeout_, kConnectTime)));
  const MutexLock lock(connection_mutex_);
  if (stopping_) return absl::UnavailableError("the update has ended");
  connection_ = std::move(connection);
  return absl::OkStatus();
}

absl::Status SlotRelay::Send(const OutgoingFrame& frame) {
  std::shared_ptr<TcpConnection> connection;
  {
    const MutexLock lock(connection_mutex_);
    connection = connection_;
  }
  TANDEM_RETURN_IF_ERROR(SendFrame(*connection, frame, timeout_));
  bytes_ += frame.header.bytes;
  return absl::OkStatus();
}

void SlotRelay::TellFailure(const absl::Status& why) const {
  LogWarn("update {} is not passed on to the rollout at {}: {}", next_.update_number, next_.address,
          std::string(why.message()));
}

void SlotRelay::Run() {
  absl::Status status = Connect();
  if (!status.ok()) TellFailure(status);
  while (const auto frame = frames_.Pop()) {
    if (status.ok()) {
      status = Send(*frame);
      if (!status.ok()) {
        TellFailure(status);
        const MutexLock lock(connection_mutex_);
        connection_->Shutdown();  // the next rollout waits for the frame
      }
    }
    if (frame->header.slot != kLastFrame) forwarded_(static_cast<int>(frame->header.slot));
  }
}

}  // namespace tandem
