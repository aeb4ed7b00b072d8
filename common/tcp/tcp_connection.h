// One TCP connection, plain or TLS, as a stream of bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/base/clock.h"
#include "common/process/local_socket.h"
#include "common/tcp/identity.h"

namespace tandem {

class TlsSession;

// A peer whose machine does not answer for so long is taken for dead, whether or not bytes wait for
// it; one that answers and reads nothing, too, once what the sockets hold is full and bytes have
// waited for so long (tcp(7), TCP_USER_TIMEOUT). Who sends much first makes sure that the peer
// is about to read it.
inline constexpr absl::Duration kPeerSilence = absl::Seconds(30);

// Made by TcpListener and DialTcp. For one thread at a time but Shutdown, which any may call.
// Unavailable: the peer has closed the connection or died, or Shutdown was called; bytes that came
// before are received first.
class TcpConnection {
 public:
  // `tls` may be null, and then there are no identities.
  TcpConnection(UniqueFd socket,
                std::unique_ptr<TlsSession> tls,
                std::string peer,
                std::vector<CallerIdentity> identities);
  ~TcpConnection();
  TcpConnection(const TcpConnection&) = delete;
  TcpConnection& operator=(const TcpConnection&) = delete;

  // How many of `bytes` went, 0 if none can go now. After fewer than `bytes` the next call begins
  // with the first byte that did not go, and has at least as many as were left; the address may be
  // another one.
  absl::StatusOr<int64_t> SendSome(const void* data, int64_t bytes);
  // How many bytes came, 0 if there are none now. Fewer than `bytes` are all there are: until then
  // poll may say nothing of bytes that TLS has received already.
  absl::StatusOr<int64_t> ReceiveSome(void* data, int64_t bytes);
  // To wait with poll after 0: fd(), and the events for which the last SendSome and the last
  // ReceiveSome wait, as far as they returned less than was asked for.
  int fd() const { return socket_.get(); }
  short wanted_events() const { return static_cast<short>(send_waits_ | receive_waits_); }
  short send_waits() const { return send_waits_; }
  short receive_waits() const { return receive_waits_; }

  // All of `bytes`. DeadlineExceeded, by RealClock, after an unknown part of them. Two ends that
  // Send more than the sockets hold before either receives wait for each other.
  absl::Status Send(const void* data, int64_t bytes, Instant deadline);
  absl::Status Receive(void* data, int64_t bytes, Instant deadline);

  // Ends the connection for both ends and wakes whoever waits for it. Any thread.
  void Shutdown();
  // True once the peer has closed its end or died, or after Shutdown. Bytes may still be there.
  bool closed() const { return PeerClosed(socket_.get()); }

  // The address of the other end, for messages.
  const std::string& peer() const { return peer_; }
  // Of the peer's certificate; without TLS none.
  const std::vector<CallerIdentity>& identities() const { return identities_; }

 private:
  absl::StatusOr<int64_t> SendPlain(const void* data, int64_t bytes);
  absl::StatusOr<int64_t> ReceivePlain(void* data, int64_t bytes);
  absl::Status Gone(const std::string& why) const;
  template <typename Step>
  absl::Status Complete(int64_t bytes, Instant deadline, const char* what, const Step& step);

  const UniqueFd socket_;
  const std::unique_ptr<TlsSession> tls_;
  const std::string peer_;
  const std::vector<CallerIdentity> identities_;
  short send_waits_ = 0, receive_waits_ = 0;
  std::atomic<bool> shut_ = false;
};

}  // namespace tandem
