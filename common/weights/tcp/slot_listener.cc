#include "common/weights/tcp/slot_listener.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include <openssl/crypto.h>
#include <sys/random.h>

#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/status.h"

namespace tandem {
namespace {

// A peer that connects and says nothing keeps one of them for some seconds.
constexpr int kAcceptors = 4;
// How often they look whether they are to stop.
constexpr absl::Duration kStopPoll = absl::Milliseconds(250);
// A trainer says its hello at once.
constexpr absl::Duration kHelloTime = absl::Seconds(5);
constexpr absl::Duration kRefusalPause = absl::Minutes(1);

absl::StatusOr<StreamTicket> NewTicket() {
  StreamTicket ticket;
  // So few bytes come whole, and no signal interrupts them.
  if (getrandom(ticket.data(), ticket.size(), 0) != std::ssize(ticket)) {
    return Internal("getrandom: {}", std::strerror(errno));
  }
  return ticket;
}

}  // namespace

SlotListener::SlotListener(std::unique_ptr<TcpListener> listener,
                           std::string address,
                           std::string project)
    : listener_(std::move(listener)), address_(std::move(address)), project_(std::move(project)) {
  for (int i = 0; i < kAcceptors; ++i) {
    acceptors_.emplace_back("slot listener", [this] { Accept(); });
  }
}

SlotListener::~SlotListener() {
  {
    const MutexLock lock(expected_mutex_);
    stopping_ = true;
  }
  acceptors_.clear();  // joins them
}

absl::StatusOr<StreamOffer> SlotListener::Expect(int64_t update_number,
                                                 const SlotShape& shape,
                                                 StreamSender sender) {
  TANDEM_ASSIGN_OR_RETURN(const StreamTicket ticket, NewTicket());
  const MutexLock lock(expected_mutex_);
  arrived_.reset();
  wanted_ = update_number;
  sender_ = sender;
  expected_ = {.update_number = update_number,
               .ticket = ticket,
               .slot_bytes = shape.slot_bytes,
               .slots = shape.slots};
  return StreamOffer{address_, {reinterpret_cast<const char*>(ticket.data()), ticket.size()}};
}

void SlotListener::Forget() {
  const MutexLock lock(expected_mutex_);
  arrived_.reset();
  expected_.reset();
  wanted_ = -1;
}

absl::StatusOr<std::unique_ptr<TcpConnection>> SlotListener::Take(absl::Duration timeout) {
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout);
  const OutsideWait wait;
  const MutexLock lock(expected_mutex_);
  while (arrived_ == nullptr) {
    if (arrived_changed_.WaitUntil(expected_mutex_, deadline) || arrived_ != nullptr) continue;
    return MakeStatus(absl::StatusCode::kDeadlineExceeded,
                      "the trainer did not connect to {} for update {} within {}", address_,
                      wanted_, absl::FormatDuration(timeout));
  }
  return std::move(arrived_);
}

void SlotListener::Accept() {
  while (true) {
    {
      const MutexLock lock(expected_mutex_);
      if (stopping_) return;
    }
    auto connection = listener_->Accept(RealClock().Now() + kStopPoll);
    if (absl::IsDeadlineExceeded(connection.status())) continue;
    const absl::Status greeted =
        connection.ok() ? Greet(*std::move(connection)) : connection.status();
    if (!greeted.ok()) TellRefusal(std::string(greeted.message()));
    // Such as no free descriptor: it would be there again at once.
    if (absl::IsResourceExhausted(greeted)) RealClock().Sleep(kStopPoll);
  }
}

absl::Status SlotListener::Greet(std::unique_ptr<TcpConnection> connection) {
  const Instant deadline = RealClock().Now() + kHelloTime;
  StreamHello hello;
  absl::Status said = connection->Receive(&hello, sizeof(hello), deadline);
  if (said.ok()) said = Match(hello, connection->identities());
  if (!said.ok()) return Annotate(said, "a data connection from " + connection->peer());
  TANDEM_RETURN_IF_ERROR(
      connection->Send(&hello.update_number, sizeof(hello.update_number), deadline));
  const MutexLock lock(expected_mutex_);
  if (wanted_ != hello.update_number) return absl::OkStatus();  // it has ended meanwhile
  arrived_ = std::move(connection);
  arrived_changed_.NotifyAll();
  return absl::OkStatus();
}

// The listener has let in any worker of the run that may fill a rollout's slots in some update.
absl::Status SlotListener::CheckSender(const std::vector<CallerIdentity>& identities) const {
  if (identities.empty()) return absl::OkStatus();  // without TLS
  for (const CallerIdentity& identity : identities) {
    if (!project_.empty() && identity.project != project_) continue;
    if (identity.role == "trainer") return absl::OkStatus();
    if (identity.role == "rollout" && sender_ == StreamSender::kTrainerOrRollout) {
      return absl::OkStatus();
    }
  }
  return absl::PermissionDeniedError(fmt::format(
      "update {} comes from a trainer{}, and its certificate {}", wanted_,
      sender_ == StreamSender::kTrainer ? "" : " or a rollout", IdentitiesText(identities)));
}

absl::Status SlotListener::Match(const StreamHello& hello,
                                 const std::vector<CallerIdentity>& identities) {
  if (hello.magic != StreamHello::kMagic) {
    return InvalidArgument("its first bytes are not those of a trainer");
  }
  const MutexLock lock(expected_mutex_);
  if (!expected_ || hello.update_number != expected_->update_number) {
    return InvalidArgument("it is for update {}, and {}", hello.update_number,
                           expected_ ? fmt::format("update {} is open", expected_->update_number)
                                     : "none waits for a connection");
  }
  // In a time that does not depend on how much of the ticket is right.
  if (CRYPTO_memcmp(hello.ticket.data(), expected_->ticket.data(), hello.ticket.size()) != 0) {
    return absl::PermissionDeniedError(
        fmt::format("its ticket is not that of update {}", hello.update_number));
  }
  TANDEM_RETURN_IF_ERROR(CheckSender(identities));
  if (hello.slot_bytes != expected_->slot_bytes || hello.slots != expected_->slots) {
    return InvalidArgument("{} slots of {} bytes were announced for update {}, it has {} of {}",
                           expected_->slots, expected_->slot_bytes, hello.update_number,
                           hello.slots, hello.slot_bytes);
  }
  expected_.reset();
  return absl::OkStatus();
}

void SlotListener::TellRefusal(const std::string& text) {
  const Instant now = RealClock().Now();
  {
    const MutexLock lock(expected_mutex_);
    if (now < silent_until_) return;
    silent_until_ = now + kRefusalPause;
  }
  LogWarn("Refused {} (told once a minute at most)", text);
}

}  // namespace tandem
