// The connection between the two processes of an update. On one host it is a Unix socket, over
// which the trainer passes the slots' handle; between hosts it is a TCP connection, over which
// their contents go (slot_stream.h). The connection stays open while the update is, and from update
// to update if the slots are persistent: each end notices by it that the other one died.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/process/files/socket_file.h"
#include "common/process/local_socket.h"
#include "common/weights/slot_stream.h"
#include "common/weights/weight_transport.h"

namespace tandem {

struct PeerConnection {
  UniqueFd socket;  // invalid: the slots cross over TCP, or both ends are in one process
  absl::Duration timeout = absl::Seconds(60);    // for pending work on the other end's device
  std::shared_ptr<SlotSender> sender = nullptr;  // over TCP, of the trainer's end
  // True once the other process has closed its end or died.
  bool closed() const {
    return (socket.valid() && PeerClosed(socket.get())) || (sender && sender->closed());
  }
};

// The slots of one update as the rollout opened them.
struct ReceivedSlots {
  PeerConnection connection;
  std::unique_ptr<ConsumerSlots> slots;
  // Fills the slots, where they come over TCP; destroyed before them.
  std::unique_ptr<SlotReceiver> receiver;
  bool closed() const { return connection.closed() || (receiver && receiver->ended()); }
};

// The rollout's end. Not thread-safe. Removes its socket file when destroyed.
class PeerListener {
 public:
  static absl::StatusOr<std::unique_ptr<PeerListener>> Listen(const std::string& path);
  const std::string& path() const { return path_; }
  // Waits for the slots of update `update_number`; those of other updates are dropped.
  // DeadlineExceeded; InvalidArgument: not the announced shape; errors of `transport`, which
  // opens them. `ledger` may be null: SharedRegion::MapForeign.
  absl::StatusOr<ReceivedSlots> Receive(int64_t update_number,
                                        const SlotShape& announced,
                                        absl::Duration timeout,
                                        WeightTransport& transport,
                                        Ledger* ledger);

 private:
  PeerListener(std::string path, UniqueFd fd)
      : path_(std::move(path)), fd_(std::move(fd)), file_(path_) {}
  const std::string path_;
  UniqueFd fd_;
  const SocketFile file_;
};

// The trainer's end: passes the slots and returns the connection, to be kept until the update ends.
// Does not wait for the rollout. Unavailable: no process listens on the socket, perhaps because the
// rollout runs on another host.
absl::StatusOr<UniqueFd> PassSlots(const std::string& path,
                                   int64_t update_number,
                                   const ProducerSlots& slots);

}  // namespace tandem
