// The part of a rollout that passes on, in a chain, what fills its slots.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include <absl/base/thread_annotations.h>
#include <absl/status/status.h>
#include <absl/time/time.h>

#include "common/base/bounded_queue.h"
#include "common/base/mutex.h"
#include "common/process/threads.h"
#include "common/tcp/tcp_connection.h"
#include "common/tcp/tcp_security.h"
#include "common/weights/slot_stream.h"

namespace tandem {

// A rollout's connection to the next one of its chain. A thread of its own dials and sends. If it
// fails, the log says so, and slots are dropped: this rollout goes on, and the next one learns of
// it by the end of the connection, or as none comes. Forward and Finish are for one thread.
class SlotRelay {
 public:
  // `timeout`: to connect, and for each part of a frame (kFramePart). `forwarded` is called on the
  // relay's thread when the bytes of a slot are no longer read, whether or not they went.
  SlotRelay(StreamTarget next,
            TcpSecurity security,
            absl::Duration timeout,
            std::function<void(int slot)> forwarded);
  ~SlotRelay();  // closes the connection, also within a frame

  // Returns at once. The bytes must not change until the slot is forwarded. At most one frame of
  // each slot is on its way.
  void Forward(int slot, const std::byte* data, int64_t bytes);
  // Waits until all slots were forwarded, and tells the next rollout that they were all.
  void Finish();
  int64_t bytes() const { return bytes_; }  // of slots, that went

 private:
  void Run();
  absl::Status Connect();
  absl::Status Send(const OutgoingFrame& frame);
  void TellFailure(const absl::Status& why) const;

  const StreamTarget next_;
  const TcpSecurity security_;
  const absl::Duration timeout_;
  const std::function<void(int slot)> forwarded_;
  int64_t sequence_ = 0;
  std::atomic<int64_t> bytes_ = 0;
  BoundedQueue<OutgoingFrame> frames_;
  Mutex connection_mutex_;
  bool stopping_ ABSL_GUARDED_BY(connection_mutex_) = false;
  std::shared_ptr<TcpConnection> connection_ ABSL_GUARDED_BY(connection_mutex_);
  NamedThread thread_;
};

}  // namespace tandem
