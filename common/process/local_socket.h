// Unix sockets between processes of one host, over which descriptors, for example of shared memory,
// can be passed.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/base/clock.h"

namespace tandem {

// Owns a file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) Reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { Reset(); }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void Reset(int fd = -1);

 private:
  int fd_ = -1;
};

// Binds and listens, for this user only (mode 0600); a stale socket file is removed.
// InvalidArgument: the path is longer than the system's 107 bytes.
absl::StatusOr<UniqueFd> ListenLocal(const std::string& path);
// Tries once. Unavailable: no process listens at `path`.
absl::StatusOr<UniqueFd> ConnectLocal(const std::string& path);
// True if `path` is a socket file on which no process of this host listens: its owner has ended, is
// on another host, or does not listen yet. False if this is unknown or there is no such file.
// Errors as of ConnectLocal for a path that is too long.
absl::StatusOr<bool> NobodyListens(const std::string& path);
// Returns the next connection from a process of the same user and closes those of other users.
// DeadlineExceeded; ResourceExhausted: no descriptor is free.
absl::StatusOr<UniqueFd> AcceptLocal(int listener, Instant deadline);

// Sends `bytes` and with them `fd`, unless it is -1. Unavailable: the peer has closed the socket.
absl::Status SendMessage(int socket, const void* data, size_t bytes, int fd = -1);
// Receives exactly `bytes`; stores a descriptor that was sent with them in `fd` unless that is
// null. Unavailable: the peer has closed the socket; DeadlineExceeded.
absl::Status ReceiveMessage(
    int socket, void* data, size_t bytes, Instant deadline, UniqueFd* fd = nullptr);
// True once the peer has closed its end or died. Does not block or consume data.
bool PeerClosed(int socket);

}  // namespace tandem
