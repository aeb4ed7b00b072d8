// What the ranks of a group over TCP tell each other at any time, also while a collective runs or
// none does: why the group has ended, their progress, and that they are gone.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/base/thread_annotations.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/process/local_socket.h"
#include "common/process/threads.h"
#include "common/tcp/tcp_connection.h"

namespace tandem {

// A thread of its own sleeps until a message comes or is to be sent. Thread-safe.
class GroupWatch {
 public:
  // `connections`, by rank, carry nothing else; this rank's own is null. ResourceExhausted: no
  // descriptor is free.
  static absl::StatusOr<std::unique_ptr<GroupWatch>> Start(
      int rank, std::vector<std::unique_ptr<TcpConnection>> connections);
  ~GroupWatch();
  GroupWatch(const GroupWatch&) = delete;
  GroupWatch& operator=(const GroupWatch&) = delete;

  // HostGroup's.
  absl::Status status() const;
  absl::Status Fail(const absl::Status& why);
  void ShowProgress(uint64_t progress);
  uint64_t ProgressOf(int rank) const;
  int FindGone(uint64_t wanted) const;

  // Readable once status() is not OK, to wake who waits with poll.
  int ended_fd() const { return ended_.get(); }
  // Waits until the group has ended, or `rank` has closed its connection: a rank that fails says
  // why before it goes. Not longer than until `deadline`, of RealClock.
  absl::Status AwaitReason(int rank, Instant deadline);

 private:
  struct Peer {
    std::unique_ptr<TcpConnection> connection;  // null: this rank, or closed
    std::string out;                            // what is to be sent
    std::string in;                             // the beginning of a message
    std::atomic<uint64_t> progress = 0;
    std::atomic<bool> closed = false;
  };

  GroupWatch(int rank, std::vector<std::unique_ptr<TcpConnection>> connections);
  void Loop();
  // Adds what is new to what is to be sent to each peer.
  void Prepare();
  void Wait(bool leaving);
  void Send(Peer& peer);
  void Receive(Peer& peer);
  // Takes the whole messages from the beginning of `in`. False: they are none of this protocol.
  bool TakeMessages(Peer& peer);
  void Close(Peer& peer);
  void Wake();
  bool unsent() const;

  const int rank_;
  std::vector<Peer> peers_;  // their connections and texts belong to the thread
  const UniqueFd wake_, ended_;
  std::atomic<bool> leaving_ = false;
  std::atomic<uint64_t> progress_ = 0;  // this rank's
  // Of the thread: what it has told the others.
  uint64_t told_progress_ = 0;
  bool told_end_ = false;
  mutable Mutex watch_mutex_;
  ConditionVariable changed_;
  absl::Status status_ ABSL_GUARDED_BY(watch_mutex_);
  NamedThread thread_;
};

}  // namespace tandem
