// Moves bytes between this rank and all others at once, on the calling thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/time/time.h>

#include "common/base/clock.h"
#include "common/comm/hosts/group_watch.h"
#include "common/tcp/tcp_connection.h"

namespace tandem {

// What goes to and comes from each other rank in a collective. Both ends know the same numbers of
// bytes, so nothing on the wire describes them.
//
// There are no credits: a connection belongs to two ranks and carries one sequence of bytes, so a
// receiver without room does not read, and TCP's window stops its sender, and nobody else. What is
// in flight is at most the staging of the receiver and the buffers of the two sockets.
class Flow {
 public:
  virtual ~Flow() = default;

  // The next bytes for `rank`; empty: none now. They stay in place until Sent has counted them.
  virtual std::span<const std::byte> ToSend(int rank) = 0;
  virtual void Sent(int rank, int64_t bytes) = 0;
  // Where the next bytes from `rank` go; empty: none are expected, or there is no room now.
  virtual std::span<std::byte> Room(int rank) = 0;
  virtual void Received(int rank, int64_t bytes) = 0;
  // Whether nothing more is to be sent to `rank` and received from it.
  virtual bool DoneWith(int rank) const = 0;
};

// The collective that runs, for messages.
struct CallName {
  const char* collective = "";
  int64_t number = 0;
};

class PeerExchange {
 public:
  // `connections` by rank, null for `rank`; `watch` and `clock` outlive the exchange.
  PeerExchange(int rank,
               int64_t generation,
               std::vector<std::unique_ptr<TcpConnection>> connections,
               GroupWatch* watch,
               Clock* clock);

  // Begins a call, which `timeout` ends.
  void Begin(CallName call, absl::Duration timeout);
  // Carries `flow` until it is done with all ranks. An error ends the group. Unavailable: a rank is
  // gone; DeadlineExceeded names those with which the flow is not done.
  absl::Status Run(Flow& flow);

 private:
  // Whether bytes went or came.
  absl::StatusOr<bool> Move(Flow& flow);
  absl::StatusOr<bool> SendTo(int rank, Flow& flow);
  absl::StatusOr<bool> ReceiveFrom(int rank, Flow& flow);
  bool Done(const Flow& flow) const;
  void Wait(Flow& flow, absl::Duration left);
  absl::Status Gone(int rank);
  absl::Status TooLate(const Flow& flow) const;

  const int rank_;
  const int64_t generation_;
  const std::vector<std::unique_ptr<TcpConnection>> connections_;
  GroupWatch* const watch_;
  Clock* const clock_;
  CallName call_;
  absl::Duration timeout_;
  Instant deadline_;
};

}  // namespace tandem
