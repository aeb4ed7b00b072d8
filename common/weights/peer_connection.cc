#include "common/weights/peer_connection.h"

#include <algorithm>
#include <utility>

#include "common/base/clock.h"
#include "common/base/progress.h"
#include "common/base/status.h"

namespace tandem {
namespace {

constexpr uint64_t kMagic = 0x54414e44454d5334;  // "TANDEMS4"
constexpr int64_t kMostPayload = 64 << 10;

struct SlotsMessage {
  uint64_t magic = kMagic;
  int64_t update_number = 0;
  int64_t slot_bytes = 0;
  int64_t slots = 0;
  int64_t direct = 0;
  SlotHandle::Kind kind = SlotHandle::Kind::kSharedMemory;
  int64_t payload_bytes = 0;  // of the message that follows
  SlotShape shape() const { return {slot_bytes, static_cast<int>(slots), direct != 0}; }
};

std::string DescribeSlots(const SlotShape& shape) {
  return shape.direct ? fmt::format("a shard of {} bytes", shape.slot_bytes)
                      : fmt::format("{} slots of {} bytes", shape.slots, shape.slot_bytes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeerListener>> PeerListener::Listen(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(UniqueFd fd, ListenLocal(path));
  return std::unique_ptr<PeerListener>(new PeerListener(path, std::move(fd)));
}

absl::StatusOr<ReceivedSlots> PeerListener::Receive(int64_t update_number,
                                                    const SlotShape& announced,
                                                    absl::Duration timeout,
                                                    WeightTransport& transport,
                                                    Ledger* ledger) {
  const Instant deadline = RealClock().Now() + timeout;
  const OutsideWait wait;
  while (true) {
    auto connection = AcceptLocal(fd_.get(), deadline);
    if (!connection.ok()) {
      return Annotate(connection.status(),
                      fmt::format("the trainer did not pass the slots of update {} over {} "
                                  "within {}",
                                  update_number, path_, absl::FormatDuration(timeout)));
    }
    SlotsMessage message;
    PassedSlots passed;
    // A trainer sends right after it connects: a peer that sends nothing died or is not a trainer.
    const Instant soon = std::min(deadline, RealClock().Now() + absl::Seconds(2));
    const int socket = connection->get();
    if (!ReceiveMessage(socket, &message, sizeof(message), soon, &passed.fd).ok()) continue;
    if (message.magic != kMagic || message.update_number != update_number) continue;
    if (message.payload_bytes < 0 || message.payload_bytes > kMostPayload) continue;
    std::string& payload = passed.handle.payload;
    payload.resize(static_cast<size_t>(message.payload_bytes));
    if (!ReceiveMessage(socket, payload.data(), payload.size(), soon).ok()) continue;
    if (message.shape() != announced) {
      return InvalidArgument("{} were announced, {} were passed", DescribeSlots(announced),
                             DescribeSlots(message.shape()));
    }
    ReceivedSlots received;
    received.connection.socket = std::move(connection).value();
    passed.handle.kind = message.kind;
    passed.shape = announced;
    TANDEM_ASSIGN_OR_RETURN(received.slots, transport.Open(std::move(passed), ledger));
    return received;
  }
}

absl::StatusOr<UniqueFd> PassSlots(const std::string& path,
                                   int64_t update_number,
                                   const ProducerSlots& slots) {
  auto connection = ConnectLocal(path);
  if (!connection.ok()) {
    return Annotate(connection.status(),
                    "trainer and rollout of a pair must share a host and a run directory");
  }
  const SlotShape& shape = slots.shape();
  const SlotHandle handle = slots.handle();
  const SlotsMessage message = {.update_number = update_number,
                                .slot_bytes = shape.slot_bytes,
                                .slots = shape.slots,
                                .direct = shape.direct,
                                .kind = handle.kind,
                                .payload_bytes = static_cast<int64_t>(handle.payload.size())};
  const int socket = connection->get();
  TANDEM_RETURN_IF_ERROR(SendMessage(socket, &message, sizeof(message), handle.fd));
  TANDEM_RETURN_IF_ERROR(SendMessage(socket, handle.payload.data(), handle.payload.size()));
  return connection;
}

}  // namespace tandem
