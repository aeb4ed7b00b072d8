#include "common/weights/pair_socket.h"

#include <algorithm>
#include <utility>

#include <absl/time/clock.h>
#include <unistd.h>

#include "common/base/status_macros.h"

namespace tandem {
namespace {

constexpr uint64_t kMagic = 0x54414e44454d5332;  // "TANDEMS2"

struct SlotsMessage {
  uint64_t magic = kMagic;
  int64_t generation = 0;
  int64_t slot_bytes = 0;
  int64_t slots = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PairListener>> PairListener::Listen(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(UniqueFd fd, ListenLocal(path));
  return std::unique_ptr<PairListener>(new PairListener(path, std::move(fd)));
}

PairListener::~PairListener() { unlink(path_.c_str()); }

absl::StatusOr<ReceivedSlots> PairListener::Receive(int64_t generation,
                                                    int64_t slot_bytes,
                                                    int slots,
                                                    absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    auto connection = AcceptLocal(fd_.get(), deadline);
    if (!connection.ok()) {
      return Annotate(connection.status(),
                      fmt::format("the trainer did not pass the slots of generation {} over {} "
                                  "within {}",
                                  generation, path_, absl::FormatDuration(timeout)));
    }
    SlotsMessage message;
    UniqueFd fd;
    // Sent right after connecting: a silent connection is a dead trainer's, or no trainer.
    const absl::Time soon = std::min(deadline, absl::Now() + absl::Seconds(2));
    if (!ReceiveMessage(connection->get(), &message, sizeof(message), soon, &fd).ok()) continue;
    if (message.magic != kMagic || message.generation != generation) continue;
    if (message.slot_bytes != slot_bytes || message.slots != slots) {
      return InvalidArgument("{} slots of {} bytes were announced, {} of {} were passed", slots,
                             slot_bytes, message.slots, message.slot_bytes);
    }
    ReceivedSlots received;
    received.connection = std::move(connection).value();
    TANDEM_ASSIGN_OR_RETURN(received.slots, SlotMemory::Map(std::move(fd), slot_bytes, slots));
    return received;
  }
}

absl::StatusOr<UniqueFd> PassSlots(const std::string& path,
                                   int64_t generation,
                                   const SlotMemory& slots) {
  auto connection = ConnectLocal(path);
  if (!connection.ok()) {
    return Annotate(connection.status(),
                    "trainer and rollout of a pair must share a host and a run directory");
  }
  const SlotsMessage message = {kMagic, generation, slots.slot_bytes(), slots.slots()};
  TANDEM_RETURN_IF_ERROR(SendMessage(connection->get(), &message, sizeof(message), slots.fd()));
  return connection;
}

}  // namespace tandem
