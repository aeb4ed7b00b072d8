#include "common/comm/hosts/tcp_meeting.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <list>
#include <string>
#include <utility>

#include <absl/time/clock.h>
#include <poll.h>

#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/tcp/tcp_address.h"
#include "common/tcp/tcp_listener.h"

namespace tandem {
namespace {

constexpr uint64_t kMagic = 0x3130'5043'5444'4e54;  // "TNDTCP01"
// The wait for others is cut, so that a cancellation is noticed soon.
constexpr absl::Duration kAcceptSlice = absl::Milliseconds(100);
// A rank that listens and does not accept yet is called for the first of these, then for twice as
// long up to the second: a slow machine needs time for a handshake.
constexpr absl::Duration kFirstDialSlice = absl::Milliseconds(250);
constexpr absl::Duration kLongestDialSlice = absl::Seconds(2);
// A peer that has connected says its hello at once.
constexpr absl::Duration kHelloTime = absl::Seconds(5);

enum class Channel : int32_t { kData, kWatch };
constexpr Channel kChannels[] = {Channel::kData, Channel::kWatch};

struct Hello {
  uint64_t magic = kMagic;
  int64_t generation = 0;
  int64_t chunk_bytes = 0;
  int32_t rank = 0;
  int32_t world_size = 0;
  int32_t to = 0;  // the rank that is dialled
  Channel channel = Channel::kData;
  HostWay way = HostWay::kAuto;
  int32_t always = 0;
  uint64_t hosts = 0;  // a hash of the members
  std::array<char, 64> ticket = {};
};

// All that a rank says that dials, the second part after it was welcomed.
struct Said {
  Hello hello;
  uint64_t confirmed = 0;  // kMagic
};
static_assert(sizeof(Said) == sizeof(Hello) + sizeof(uint64_t));

enum class Verdict : int32_t { kWelcome, kOtherOptions, kOtherGeneration, kNotAdmitted, kTaken };
struct Answer {
  int64_t generation = 0;
  Verdict verdict = Verdict::kWelcome;
  int32_t world_size = 0;
};

uint64_t HashOf(const std::vector<GroupMember>& members) {
  uint64_t hash = 0;
  for (const GroupMember& member : members) hash = CallSignature(member.host, {int64_t(hash)});
  return hash;
}

Hello HelloOf(const SharedMemoryGroupOptions& options, const GroupHosts& hosts) {
  Hello hello;
  hello.generation = options.generation;
  hello.chunk_bytes = options.staging_bytes;
  hello.rank = options.rank;
  hello.world_size = options.world_size;
  hello.way = hosts.way;
  hello.always = hosts.always ? 1 : 0;
  hello.hosts = HashOf(hosts.members);
  std::copy(hosts.ticket.begin(), hosts.ticket.end(), hello.ticket.begin());
  return hello;
}

// In a time that does not tell how much is equal.
bool SameTicket(const Hello& a, const Hello& b) {
  unsigned different = 0;
  for (size_t i = 0; i < a.ticket.size(); ++i) {
    different |= static_cast<unsigned char>(a.ticket[i] ^ b.ticket[i]);
  }
  return different == 0;
}

// Whether a certificate, if `security` asks for one, may be that of `rank`. It may name others as
// well, of other roles and projects, whose ranks say nothing of this one.
bool MayBeRank(const TcpConnection& connection, const TcpSecurity& security, int rank) {
  const auto& identities = connection.identities();
  const auto& roles = security.peer_roles;
  return !security.enabled() ||
         std::any_of(identities.begin(), identities.end(), [&](const CallerIdentity& one) {
           return one.project == security.project &&
                  std::find(roles.begin(), roles.end(), one.role) != roles.end() &&
                  (one.rank < 0 || one.rank == rank);
         });
}

class Meeting {
 public:
  Meeting(const SharedMemoryGroupOptions& options, const GroupHosts& hosts, size_t most_comers)
      : options_(options),
        hosts_(hosts),
        most_comers_(most_comers),
        mine_(HelloOf(options, hosts)) {
    links_.data.resize(static_cast<size_t>(options.world_size));
    links_.watch.resize(static_cast<size_t>(options.world_size));
  }

  absl::StatusOr<TcpLinks> Meet() {
    const Instant deadline = options_.clock->Now() + options_.deadline;
    while (true) {
      // Read before the ranks are looked for: those that are there by then are in time.
      const bool late = options_.clock->Now() >= deadline;
      TANDEM_RETURN_IF_ERROR(CheckCancelled());
      bool complete = true;
      for (int rank = 0; rank < options_.rank; ++rank) {
        for (const Channel channel : kChannels) {
          if (IsOpen(rank, channel)) continue;
          TANDEM_ASSIGN_OR_RETURN(const bool came, Dial(rank, channel));
          complete = complete && came;
          if (!came) break;
        }
      }
      complete = complete && AllOpenAbove();
      if (complete) return std::move(links_);
      if (late) return RanksMissing();
      // Also while only lower ranks are missing: it is the pause between two calls to them.
      TANDEM_RETURN_IF_ERROR(HearComers());
    }
  }

 private:
  std::unique_ptr<TcpConnection>& Link(int rank, Channel channel) {
    auto& links = channel == Channel::kData ? links_.data : links_.watch;
    return links[static_cast<size_t>(rank)];
  }
  bool IsOpen(int rank, Channel channel) {
    const auto& link = Link(rank, channel);
    return link != nullptr && !link->closed();
  }
  bool AllOpenAbove() {
    for (int rank = options_.rank + 1; rank < options_.world_size; ++rank) {
      for (const Channel channel : kChannels) {
        if (!IsOpen(rank, channel)) return false;
      }
    }
    return true;
  }
  absl::Status CheckCancelled() const {
    if (options_.cancelled == nullptr || !options_.cancelled->load()) return absl::OkStatus();
    return MakeStatus(absl::StatusCode::kAborted, "rank {}: joining generation {} was cancelled",
                      options_.rank, options_.generation);
  }
  absl::Status RanksMissing();
  absl::Status Over(int64_t newer) const {
    return MakeStatus(absl::StatusCode::kAborted,
                      "rank {}: generation {} of the group is over, {} has begun", options_.rank,
                      options_.generation, newer);
  }

  // False: it is not there yet.
  absl::StatusOr<bool> Dial(int rank, Channel channel);
  // The error that a refused rank returns; OK: it tries again.
  absl::Status Refusal(int rank, const Answer& answer) const;
  // A connection of who may be a higher rank, and what it has said so far.
  struct Comer {
    std::unique_ptr<TcpConnection> connection;
    Instant deadline;  // of RealClock: then it has said nothing of use
    Said said;
    int64_t came = 0;  // bytes of `said`
  };
  // Waits a moment for higher ranks, and hears all that have come, whoever of them is silent. An
  // error ends the meeting.
  absl::Status HearComers();
  void AwaitComers() const;
  void TakeComers();
  // Whether there is more to hear of it.
  absl::StatusOr<bool> Hear(Comer& comer);
  absl::StatusOr<bool> AnswerHello(Comer& comer);
  Verdict Judge(const TcpConnection& connection, const Hello& hello);

  const SharedMemoryGroupOptions& options_;
  const GroupHosts& hosts_;
  const size_t most_comers_;
  const Hello mine_;
  TcpLinks links_;
  std::list<Comer> comers_;
  std::string last_trouble_;  // why the last call failed
  absl::Duration dial_slice_ = kFirstDialSlice;
};

absl::Status Meeting::RanksMissing() {
  std::string missing;
  for (int rank = 0; rank < options_.world_size; ++rank) {
    if (rank == options_.rank) continue;
    if (IsOpen(rank, Channel::kData) && IsOpen(rank, Channel::kWatch)) continue;
    missing += fmt::format("{}{} ({})", missing.empty() ? "" : ", ", rank,
                           hosts_.members[static_cast<size_t>(rank)].data_address);
  }
  return MakeStatus(absl::StatusCode::kDeadlineExceeded,
                    "rank {} waited {} for rank {} of {} to join generation {}{}{}", options_.rank,
                    absl::FormatDuration(options_.deadline), missing, options_.world_size,
                    options_.generation, last_trouble_.empty() ? "" : "; last: ", last_trouble_);
}

absl::StatusOr<bool> Meeting::Dial(int rank, Channel channel) {
  const std::string& address = hosts_.members[static_cast<size_t>(rank)].data_address;
  const Instant soon = RealClock().Now() + dial_slice_;
  auto connection = DialTcp(address, hosts_.security, soon);
  // Files that do not fit together may be those of a certificate that is just being replaced.
  if (absl::IsPermissionDenied(connection.status())) {
    return Annotate(connection.status(), fmt::format("rank {} calls rank {}", options_.rank, rank));
  }
  Answer answer;
  absl::Status status = connection.status();
  // Perhaps an earlier process has its port still.
  if (status.ok() && !MayBeRank(**connection, hosts_.security, rank)) {
    status =
        MakeStatus(absl::StatusCode::kPermissionDenied, "{} is not rank {}: its certificate {}",
                   address, rank, IdentitiesText((*connection)->identities()));
  }
  if (status.ok()) {
    Hello hello = mine_;
    hello.to = rank;
    hello.channel = channel;
    status = (*connection)->Send(&hello, sizeof(hello), soon);
    if (status.ok()) status = (*connection)->Receive(&answer, sizeof(answer), soon);
  }
  if (status.ok() && answer.verdict == Verdict::kWelcome) {
    // Without this word the other rank drops the connection: it then knows that its answer came.
    status = (*connection)->Send(&mine_.magic, sizeof(mine_.magic), soon);
  }
  if (!status.ok()) {
    last_trouble_ = std::string(status.message());
    if (absl::IsDeadlineExceeded(status)) {
      dial_slice_ = std::min(2 * dial_slice_, kLongestDialSlice);
    }
    return false;
  }
  if (answer.verdict != Verdict::kWelcome) {
    TANDEM_RETURN_IF_ERROR(Refusal(rank, answer));
    return false;
  }
  Link(rank, channel) = std::move(connection).value();
  return true;
}

absl::Status Meeting::Refusal(int rank, const Answer& answer) const {
  if (answer.verdict == Verdict::kOtherOptions) {
    return InvalidArgument(
        "rank {} of {} was refused by rank {}, which has {} ranks: ranks, world size, hosts, the "
        "way of sums and chunk bytes must agree",
        options_.rank, options_.world_size, rank, answer.world_size);
  }
  if (answer.verdict == Verdict::kNotAdmitted) {
    return absl::PermissionDeniedError(fmt::format(
        "rank {} was refused by rank {}: its ticket is another one, or its certificate is that of "
        "another rank",
        options_.rank, rank));
  }
  if (answer.verdict == Verdict::kOtherGeneration && answer.generation > options_.generation) {
    return Over(answer.generation);
  }
  return absl::OkStatus();  // still in an older group, or holds this rank's predecessor
}

absl::Status Meeting::HearComers() {
  AwaitComers();
  TakeComers();
  for (auto comer = comers_.begin(); comer != comers_.end();) {
    TANDEM_ASSIGN_OR_RETURN(const bool more, Hear(*comer));
    const bool late = RealClock().Now() >= comer->deadline;
    comer = more && !late ? std::next(comer) : comers_.erase(comer);
  }
  return absl::OkStatus();
}

void Meeting::AwaitComers() const {
  // One that there is no room for would end the wait at once.
  const bool has_room = comers_.size() < most_comers_;
  std::vector<pollfd> entries = {{has_room ? hosts_.listener->arrived_fd() : -1, POLLIN, 0}};
  for (const Comer& comer : comers_) {
    entries.push_back({comer.connection->fd(), comer.connection->receive_waits(), 0});
  }
  poll(entries.data(), entries.size(), static_cast<int>(absl::ToInt64Milliseconds(kAcceptSlice)));
}

// A stranger, a certificate that is just being replaced, or a want of descriptors, which may be
// over since, must not end the group, nor go unnoticed.
void Meeting::TakeComers() {
  while (comers_.size() < most_comers_) {
    auto connection = hosts_.listener->Accept(RealClock().Now());
    if (connection.ok()) {
      comers_.push_back({std::move(connection).value(), RealClock().Now() + kHelloTime});
      continue;
    }
    if (absl::IsDeadlineExceeded(connection.status())) return;
    const std::string text(connection.status().message());
    if (text != last_trouble_) LogWarn("a data connection was dropped: {}", text);
    last_trouble_ = text;
  }
}

absl::StatusOr<bool> Meeting::Hear(Comer& comer) {
  constexpr int64_t kHelloBytes = sizeof(Hello), kAllBytes = sizeof(Said);
  while (comer.came < kAllBytes) {
    const bool greeted = comer.came >= kHelloBytes;
    const auto came =
        comer.connection->ReceiveSome(reinterpret_cast<char*>(&comer.said) + comer.came,
                                      (greeted ? kAllBytes : kHelloBytes) - comer.came);
    if (!came.ok()) return false;
    if (*came == 0) return true;
    comer.came += *came;
    if (greeted || comer.came < kHelloBytes) continue;
    TANDEM_ASSIGN_OR_RETURN(const bool welcome, AnswerHello(comer));
    if (!welcome) return false;
  }
  if (comer.said.confirmed == kMagic) {
    Link(comer.said.hello.rank, comer.said.hello.channel) = std::move(comer.connection);
  }
  return false;
}

Verdict Meeting::Judge(const TcpConnection& connection, const Hello& hello) {
  // First: another generation, of a controller that was started again, may have another ticket.
  if (hello.generation != mine_.generation) return Verdict::kOtherGeneration;
  if (!SameTicket(hello, mine_) || !MayBeRank(connection, hosts_.security, hello.rank))
    return Verdict::kNotAdmitted;
  if (hello.world_size != mine_.world_size || hello.chunk_bytes != mine_.chunk_bytes ||
      hello.way != mine_.way || hello.always != mine_.always || hello.hosts != mine_.hosts ||
      hello.to != mine_.rank || hello.rank <= mine_.rank || hello.rank >= mine_.world_size) {
    return Verdict::kOtherOptions;
  }
  return IsOpen(hello.rank, hello.channel) ? Verdict::kTaken : Verdict::kWelcome;
}

absl::StatusOr<bool> Meeting::AnswerHello(Comer& comer) {
  const Hello& hello = comer.said.hello;
  if (hello.magic != kMagic ||
      (hello.channel != Channel::kData && hello.channel != Channel::kWatch)) {
    return false;
  }
  const Answer answer = {mine_.generation, Judge(*comer.connection, hello), mine_.world_size};
  // So few bytes go at once.
  const bool sent =
      comer.connection->Send(&answer, sizeof(answer), RealClock().Now() + kAcceptSlice).ok();
  // Only who has the ticket ends a meeting. Others of a newer generation try again until the
  // controller has told this rank of it.
  if (hello.generation > mine_.generation && SameTicket(hello, mine_) &&
      MayBeRank(*comer.connection, hosts_.security, hello.rank)) {
    return Over(hello.generation);
  }
  return sent && answer.verdict == Verdict::kWelcome;
}

absl::Status CheckMembers(const SharedMemoryGroupOptions& options, const GroupHosts& hosts) {
  if (static_cast<int>(hosts.members.size()) != options.world_size) {
    return InvalidArgument("a group of {} ranks has {} members", options.world_size,
                           hosts.members.size());
  }
  if (hosts.listener == nullptr) return InvalidArgument("a group of several hosts has no listener");
  if (hosts.ticket.size() > sizeof(Hello::ticket)) {
    return InvalidArgument("a group's ticket has {} bytes, at most {}", hosts.ticket.size(),
                           sizeof(Hello::ticket));
  }
  for (int rank = 0; rank < options.rank; ++rank) {
    const std::string& address = hosts.members[static_cast<size_t>(rank)].data_address;
    TANDEM_RETURN_IF_ERROR(
        Annotate(ParseTcpAddress(address).status(), fmt::format("rank {}", rank)));
  }
  return RanksByHost(hosts.members).status();
}

}  // namespace

absl::StatusOr<TcpLinks> MeetOverTcp(const SharedMemoryGroupOptions& options,
                                     const GroupHosts& hosts,
                                     size_t most_comers) {
  TANDEM_RETURN_IF_ERROR(CheckMembers(options, hosts));
  const OutsideWait wait;
  return Meeting(options, hosts, most_comers).Meet();
}

}  // namespace tandem
