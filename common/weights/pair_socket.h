// How the slots' handle crosses from a trainer to its rollout, which proves that both are on
// one host. The connection stays open for the length of the update, and from update to update where
// the slots do: its end tells that the trainer died.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/process/local_socket.h"
#include "common/weights/weight_transport.h"

namespace tandem {

// The rollout's view of the mapping of one update.
struct ReceivedSlots {
  PairLink link;
  std::unique_ptr<SlotMemory> slots;
};

// The rollout's end. Not thread-safe. Removes the socket file when destroyed.
class PairListener {
 public:
  static absl::StatusOr<std::unique_ptr<PairListener>> Listen(const std::string& path);
  ~PairListener();
  const std::string& path() const { return path_; }
  // Waits for the slots passed under `generation`; those of other generations are dropped.
  // DeadlineExceeded; InvalidArgument if they do not have the announced shape; errors of
  // `transport`, which opens them. `ledger` may be null: SharedRegion::MapForeign.
  absl::StatusOr<ReceivedSlots> Receive(int64_t generation,
                                        const SlotShape& announced,
                                        absl::Duration timeout,
                                        WeightTransport& transport,
                                        Ledger* ledger);

 private:
  PairListener(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  const std::string path_;
  UniqueFd fd_;
};

// The trainer's end: passes the slots and returns the connection, to be kept until the update ends.
// Does not wait for the rollout. Unavailable: nobody listens there; Unix sockets do not cross
// hosts.
absl::StatusOr<UniqueFd> PassSlots(const std::string& path,
                                   int64_t generation,
                                   const SlotMemory& slots);

}  // namespace tandem
