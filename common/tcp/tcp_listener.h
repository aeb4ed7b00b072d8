// How TCP connections come about: a port that listens, and a call to one.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include <absl/base/thread_annotations.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>
#include <poll.h>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/process/local_socket.h"
#include "common/process/threads.h"
#include "common/tcp/introduction.h"
#include "common/tcp/tcp_address.h"
#include "common/tcp/tcp_connection.h"
#include "common/tcp/tcp_security.h"

namespace tandem {

// A peer that has connected says who it is within this time, or is dropped.
inline constexpr absl::Duration kIntroduction = absl::Seconds(10);

// A thread of its own takes connections and introduces their peers all at once, so that one that
// says nothing holds up no other. Thread-safe.
class TcpListener {
 public:
  // `address`: "127.0.0.1:0", "0.0.0.0:0", "[::]:0"; port 0 is any free one. Without TLS whoever
  // reaches the port can connect: its users ask for a secret in their first message, or listen on
  // networks that are closed. InvalidArgument: the address, or a file of `security`.
  // FailedPrecondition: the port is taken, or the address is not this host's. ResourceExhausted: no
  // descriptor is free. `clock`, which outlives the listener, tells when a peer is late.
  static absl::StatusOr<std::unique_ptr<TcpListener>> Listen(
      const std::string& address,
      TcpSecurity security,
      absl::Duration peer_silence = kPeerSilence,
      Clock& clock = RealClock());
  ~TcpListener();
  TcpListener(const TcpListener&) = delete;
  TcpListener& operator=(const TcpListener&) = delete;

  int port() const { return port_; }
  // The next connection whose peer is introduced: it has shown its certificate. Waits until
  // `deadline`, of RealClock. DeadlineExceeded: none came.
  // PermissionDenied: a peer was refused, or refuses; Unavailable: one left or said nothing.
  // InvalidArgument: a file of the security could not be used for it. After these three the caller
  // accepts the next one; of very many that wait the oldest are forgotten. Other codes, as
  // ResourceExhausted for no free descriptor: no connection could be taken since the last one.
  absl::StatusOr<std::unique_ptr<TcpConnection>> Accept(Instant deadline);
  // Readable while Accept has something to return at once, for those who wait with poll.
  int arrived_fd() const { return arrived_event_.get(); }

 private:
  TcpListener(
      UniqueFd socket, TcpSecurity security, absl::Duration peer_silence, Clock& clock, int port);
  absl::Status Start();
  void Loop();
  // Waits until a peer, or a connection where one more has room, has something to say.
  std::vector<pollfd> Wait(const std::list<AcceptedIntroduction>& peers, Instant quiet_until);
  // Takes one connection. Not OK: no more can be taken for a moment.
  absl::Status Take(std::list<AcceptedIntroduction>* peers);
  void Deliver(AcceptedIntroduction::Result result);
  void ForgetOldestRefusal() ABSL_EXCLUSIVE_LOCKS_REQUIRED(arrived_mutex_);
  // What is wrong with the port; OK: nothing any more.
  void NoteTrouble(const absl::Status& trouble);
  // Whether one more may wait for Accept. If not, those whose peers have left make room.
  bool HasRoom();
  void ShowWhetherArrived() ABSL_EXCLUSIVE_LOCKS_REQUIRED(arrived_mutex_);

  const UniqueFd socket_;
  const TcpSecurity security_;
  const absl::Duration peer_silence_;
  Clock& clock_;
  const int port_;
  UniqueFd arrived_event_;
  UniqueFd wake_event_;  // of the thread: there is room again, or it is to stop
  Mutex arrived_mutex_;
  ConditionVariable arrived_changed_;
  std::deque<AcceptedIntroduction::Result> arrived_ ABSL_GUARDED_BY(arrived_mutex_);
  absl::Status trouble_ ABSL_GUARDED_BY(arrived_mutex_);
  bool stopping_ ABSL_GUARDED_BY(arrived_mutex_) = false;
  NamedThread thread_;
};

// The first of `addresses`, which `text` stands for, that takes a connection; each gets an equal
// part of the time that is left, as the first may be one that never answers. Unavailable or
// DeadlineExceeded: what the last one said.
absl::StatusOr<UniqueFd> ConnectToAny(const std::vector<ResolvedAddress>& addresses,
                                      const std::string& text,
                                      Instant deadline,
                                      absl::Duration peer_silence = kPeerSilence);

// Tries once, each address of a host's name. Unavailable: nobody listens at `address`, the host's
// name is not known, or the peer left. PermissionDenied: one end refuses the other, or only one of
// them speaks TLS. InvalidArgument: the address, or a file of `security`, which is read anew and
// may just be being replaced. DeadlineExceeded, by RealClock; asking the name service takes its own
// time.
absl::StatusOr<std::unique_ptr<TcpConnection>> DialTcp(const std::string& address,
                                                       const TcpSecurity& security,
                                                       Instant deadline,
                                                       absl::Duration peer_silence = kPeerSilence);

}  // namespace tandem
