#include "common/comm/shared_memory_group.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string>

#include <absl/time/clock.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/numeric.h"
#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/device/shared_region.h"
#include "common/process/files/socket_file.h"

namespace tandem {
namespace {

constexpr int64_t kPageBytes = 4096;
constexpr int64_t kAbortWordBytes = 64;  // a cache line: all ranks poll it

int64_t ControlBytes(int world_size) {
  const auto per_rank =
      static_cast<int64_t>(sizeof(SharedSegment::RankLine) + sizeof(SharedSegment::Reason));
  return RoundUp(kAbortWordBytes + world_size * per_rank, kPageBytes);
}

}  // namespace

void WaitWhileEqual(std::atomic<uint32_t>* word, uint32_t value, absl::Duration timeout) {
  const timespec relative = absl::ToTimespec(timeout);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT, value, &relative, nullptr, 0);
}

void WakeAll(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

int64_t SharedSegment::Bytes(int world_size, int64_t staging_bytes) {
  return ControlBytes(world_size) + 2 * world_size * RoundUp(staging_bytes, kPageBytes);
}

absl::StatusOr<std::unique_ptr<SharedSegment>> SharedSegment::Map(UniqueFd fd,
                                                                  int rank,
                                                                  int world_size,
                                                                  int64_t staging_bytes) {
  const int64_t bytes = Bytes(world_size, staging_bytes);
  TANDEM_RETURN_IF_ERROR(CheckSharedMemory(fd.get(), bytes));
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) {
    return MakeStatus(absl::StatusCode::kResourceExhausted,
                      "cannot map {} bytes of shared memory for collectives: {}", bytes,
                      strerror(errno));
  }
  std::unique_ptr<SharedSegment> segment(new SharedSegment());
  segment->base_ = static_cast<std::byte*>(base);
  segment->bytes_ = bytes;
  segment->rank_ = rank;
  segment->world_size_ = world_size;
  segment->staging_bytes_ = RoundUp(staging_bytes, kPageBytes);
  return segment;
}

SharedSegment::~SharedSegment() { munmap(base_, bytes_); }

SharedSegment::RankLine& SharedSegment::line(int rank) const {
  return reinterpret_cast<RankLine*>(base_ + kAbortWordBytes)[rank];
}

SharedSegment::Reason& SharedSegment::reason(int rank) const {
  return reinterpret_cast<Reason*>(&line(world_size_))[rank];  // after the last rank's line
}

std::byte* SharedSegment::staging(int rank, uint32_t step) const {
  return base_ + ControlBytes(world_size_) + (2 * rank + step % 2) * staging_bytes_;
}

void SharedSegment::Abort(const absl::Status& status) {
  const MutexLock lock(own_reason_mutex_);
  if (abort_word().load(std::memory_order_acquire) == 0) {
    Reason& mine = reason(rank_);
    mine.code = static_cast<int32_t>(status.code());
    const std::string text(status.message());
    strncpy(mine.text, text.c_str(), sizeof(mine.text) - 1);
    uint32_t expected = 0;  // stays as it is if another rank was faster
    abort_word().compare_exchange_strong(expected, rank_ + 1, std::memory_order_acq_rel);
  }
  for (int rank = 0; rank < world_size_; ++rank) WakeAll(&line(rank).steps);
}

absl::Status SharedSegment::status() const {
  const uint32_t word = abort_word().load(std::memory_order_acquire);
  if (word == 0) return absl::OkStatus();
  const int rank = static_cast<int>(word) - 1;
  if (rank >= world_size_) return Internal("the group's abort word names no rank: {}", word);
  absl::Status why(static_cast<absl::StatusCode>(reason(rank).code), reason(rank).text);
  const bool by_peer =
      absl::IsUnavailable(why) || absl::IsDeadlineExceeded(why) || absl::IsAborted(why);
  return WithOrigin(std::move(why), by_peer ? FailureOrigin::kAnotherRank : FailureOrigin::kHere);
}

namespace {

constexpr uint64_t kMagic = 0x54414e44454d3031;  // "TANDEM01"
constexpr absl::Duration kRendezvousSlice = absl::Milliseconds(100);
constexpr absl::Duration kRetry = absl::Milliseconds(5);

struct Hello {
  uint64_t magic = kMagic;
  int64_t generation = 0;
  int64_t staging_bytes = 0;
  int32_t rank = 0;
  int32_t world_size = 0;
};

enum class Verdict : int32_t { kWelcome, kOtherOptions, kOtherGeneration, kRankTaken };
struct Answer {
  int64_t generation = 0;
  Verdict verdict = Verdict::kWelcome;
  int32_t world_size = 0;
};

// Rendezvous waits in slices, so that it notices a cancellation or the deadline soon.
Instant EndOfSlice(const SharedMemoryGroupOptions& options, Instant deadline) {
  return RealClock().Now() + std::min(deadline - options.clock->Now(), kRendezvousSlice);
}

absl::Status CheckCancelled(const SharedMemoryGroupOptions& options) {
  if (options.cancelled != nullptr && options.cancelled->load()) {
    return MakeStatus(absl::StatusCode::kAborted, "rank {}: joining generation {} was cancelled",
                      options.rank, options.generation);
  }
  return absl::OkStatus();
}

absl::Status RanksMissing(const SharedMemoryGroupOptions& options,
                          const std::vector<UniqueFd>& connections) {
  std::string missing;
  for (int rank = 1; rank < options.world_size; ++rank) {
    if (!connections[rank].valid()) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
  }
  return MakeStatus(absl::StatusCode::kDeadlineExceeded,
                    "rank 0 waited {} for rank {} of {} to join generation {} at {}",
                    absl::FormatDuration(options.deadline), missing, options.world_size,
                    options.generation, options.rendezvous);
}

Verdict Judge(const SharedMemoryGroupOptions& options,
              const Hello& hello,
              const std::vector<UniqueFd>& connections) {
  if (hello.generation != options.generation) return Verdict::kOtherGeneration;
  if (hello.world_size != options.world_size || hello.staging_bytes != options.staging_bytes ||
      hello.rank < 1 || hello.rank >= options.world_size) {
    return Verdict::kOtherOptions;
  }
  if (connections[hello.rank].valid() && !PeerClosed(connections[hello.rank].get())) {
    return Verdict::kRankTaken;
  }
  return Verdict::kWelcome;
}

// One connection at rank 0: kept if accepted, else it is sent the reason and closed.
void Receive(const SharedMemoryGroupOptions& options,
             UniqueFd connection,
             std::vector<UniqueFd>* connections) {
  Hello hello;
  // A peer sends its hello with its connect: one that is silent is not a rank.
  const Instant soon = RealClock().Now() + absl::Seconds(1);
  if (!ReceiveMessage(connection.get(), &hello, sizeof(hello), soon).ok()) return;
  if (hello.magic != kMagic) return;
  const Answer answer = {options.generation, Judge(options, hello, *connections),
                         options.world_size};
  if (answer.verdict == Verdict::kWelcome) {
    (*connections)[hello.rank] = std::move(connection);
  } else {
    (void)SendMessage(connection.get(), &answer, sizeof(answer));
  }
}

absl::StatusOr<GroupLink> Host(const SharedMemoryGroupOptions& options, Instant deadline) {
  GroupLink link;
  link.staging_bytes = options.staging_bytes;
  link.connections.resize(options.world_size);
  TANDEM_ASSIGN_OR_RETURN(
      link.segment, CreateSharedMemory("collectives", SharedSegment::Bytes(options.world_size,
                                                                           options.staging_bytes)));
  TANDEM_ASSIGN_OR_RETURN(const UniqueFd listener, ListenLocal(options.rendezvous));
  const SocketFile file(options.rendezvous);
  const auto all_here = [&] {
    return std::all_of(link.connections.begin() + 1, link.connections.end(),
                       [](const UniqueFd& fd) { return fd.valid() && !PeerClosed(fd.get()); });
  };
  absl::Status status;
  while (status.ok() && !all_here()) {
    status = CheckCancelled(options);
    if (!status.ok()) break;
    if (options.clock->Now() >= deadline) status = RanksMissing(options, link.connections);
    auto connection = AcceptLocal(listener.get(), EndOfSlice(options, deadline));
    if (connection.ok()) {
      Receive(options, std::move(connection).value(), &link.connections);
    } else if (status.ok() && !absl::IsDeadlineExceeded(connection.status())) {
      status = connection.status();
    }
  }
  file.Remove();
  TANDEM_RETURN_IF_ERROR(status);
  const Answer welcome = {options.generation, Verdict::kWelcome, options.world_size};
  for (int rank = 1; rank < options.world_size; ++rank) {
    TANDEM_RETURN_IF_ERROR(Annotate(
        SendMessage(link.connections[rank].get(), &welcome, sizeof(welcome), link.segment.get()),
        fmt::format("rank {} left while joining", rank)));
  }
  return link;
}

// The error that a refused rank returns; OK: it tries again.
absl::Status Refusal(const SharedMemoryGroupOptions& options, const Answer& answer) {
  if (answer.verdict == Verdict::kOtherOptions) {
    return InvalidArgument(
        "rank {} of {} was refused by rank 0, which has {} ranks: ranks, world size and staging "
        "bytes must agree",
        options.rank, options.world_size, answer.world_size);
  }
  if (answer.verdict == Verdict::kOtherGeneration && answer.generation > options.generation) {
    return MakeStatus(absl::StatusCode::kAborted,
                      "rank {}: generation {} of the group is over, {} has begun", options.rank,
                      options.generation, answer.generation);
  }
  return absl::OkStatus();  // the socket still belongs to an older group, or to this rank's
                            // predecessor
}

absl::StatusOr<GroupLink> Visit(const SharedMemoryGroupOptions& options, Instant deadline) {
  Hello hello;
  hello.generation = options.generation;
  hello.staging_bytes = options.staging_bytes;
  hello.rank = options.rank;
  hello.world_size = options.world_size;
  for (; options.clock->Now() < deadline; absl::SleepFor(kRetry)) {
    TANDEM_RETURN_IF_ERROR(CheckCancelled(options));
    auto connection = ConnectLocal(options.rendezvous);
    if (absl::IsUnavailable(connection.status())) continue;
    TANDEM_RETURN_IF_ERROR(connection.status());
    if (!SendMessage(connection->get(), &hello, sizeof(hello)).ok()) continue;
    GroupLink link;
    link.staging_bytes = options.staging_bytes;
    Answer answer;
    absl::Status received;
    do {
      TANDEM_RETURN_IF_ERROR(CheckCancelled(options));
      received = ReceiveMessage(connection->get(), &answer, sizeof(answer),
                                EndOfSlice(options, deadline), &link.segment);
    } while (absl::IsDeadlineExceeded(received) && options.clock->Now() < deadline);
    if (!received.ok()) continue;
    if (answer.verdict == Verdict::kWelcome) {
      link.connections.push_back(std::move(connection).value());
      return link;
    }
    TANDEM_RETURN_IF_ERROR(Refusal(options, answer));
  }
  return MakeStatus(absl::StatusCode::kDeadlineExceeded,
                    "rank {} waited {} at {} for rank 0 and the others of {} to join generation {}",
                    options.rank, absl::FormatDuration(options.deadline), options.rendezvous,
                    options.world_size, options.generation);
}

}  // namespace

absl::StatusOr<GroupLink> MeetGroup(const SharedMemoryGroupOptions& options) {
  const Instant deadline = options.clock->Now() + options.deadline;
  const OutsideWait wait;
  return options.rank == 0 ? Host(options, deadline) : Visit(options, deadline);
}

}  // namespace tandem
