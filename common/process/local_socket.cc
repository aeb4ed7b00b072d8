#include "common/process/local_socket.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace tandem {
namespace {

absl::StatusOr<sockaddr_un> MakeAddress(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return InvalidArgument(
        "socket path {} has {} bytes; a Unix socket takes 1 to {}: choose a shorter "
        "cluster.run_dir",
        path, path.size(), sizeof(address.sun_path) - 1);
  }
  memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

// Waits until `fd` is readable or its peer has closed it. DeadlineExceeded with the message `what`.
absl::Status WaitReadable(int fd, Instant deadline, const std::string& what) {
  while (true) {
    const absl::Duration left = std::max(absl::ZeroDuration(), deadline - RealClock().Now());
    pollfd entry = {fd, POLLIN, 0};
    const int timeout = static_cast<int>(std::min<int64_t>(
        absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))), 1'000'000'000));
    const int ready = poll(&entry, 1, timeout);
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return Internal("poll: {}", strerror(errno));
    if (ready == 0 && RealClock().Now() >= deadline) {
      return MakeStatus(absl::StatusCode::kDeadlineExceeded, "{}", what);
    }
  }
}

bool SameUser(int fd) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

// Keeps the first descriptor of a message and closes any other.
void ReceiveDescriptors(msghdr& message, UniqueFd* fd) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int received = -1;
      memcpy(&received, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
      UniqueFd owned(received);
      if (fd != nullptr && !fd->valid()) *fd = std::move(owned);
    }
  }
}

}  // namespace

void UniqueFd::Reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

absl::StatusOr<UniqueFd> ListenLocal(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const sockaddr_un address, MakeAddress(path));
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Internal("socket: {}", strerror(errno));
  struct stat left {};
  if (lstat(path.c_str(), &left) == 0 && !S_ISSOCK(left.st_mode)) {
    return FailedPrecondition("cannot listen on Unix socket {}: it exists and is not a socket",
                              path);
  }
  unlink(path.c_str());
  // The file is made with the mode that the socket has, less the umask: at no moment is it open to
  // others. The second change gives the owner what an odd umask took.
  if (fchmod(fd.get(), 0600) != 0 ||
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      chmod(path.c_str(), 0600) != 0 || listen(fd.get(), 64) != 0) {
    return FailedPrecondition("cannot listen on Unix socket {}: {}", path, strerror(errno));
  }
  return fd;
}

absl::StatusOr<UniqueFd> ConnectLocal(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const sockaddr_un address, MakeAddress(path));
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Internal("socket: {}", strerror(errno));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return MakeStatus(absl::StatusCode::kUnavailable, "no process listens on Unix socket {}: {}",
                      path, strerror(errno));
  }
  return fd;
}

absl::StatusOr<bool> NobodyListens(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const sockaddr_un address, MakeAddress(path));
  // Without waiting: a listener whose queue of connections is full is one.
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Internal("socket: {}", strerror(errno));
  const int result =
      connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  return result != 0 && errno == ECONNREFUSED;
}

absl::StatusOr<UniqueFd> AcceptLocal(int listener, Instant deadline) {
  while (true) {
    TANDEM_RETURN_IF_ERROR(WaitReadable(listener, deadline, "no connection arrived in time"));
    UniqueFd fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (fd.valid() && SameUser(fd.get())) return fd;
    // Any other error, such as no free descriptor, would occur again at once.
    if (!fd.valid() && errno != EINTR && errno != ECONNABORTED) {
      return MakeStatus(IoErrorCode(errno), "accept: {}", strerror(errno));
    }
  }
}

absl::Status SendMessage(int socket, const void* data, size_t bytes, int fd) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    iovec part = {const_cast<char*>(at), bytes};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (fd >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      memcpy(CMSG_DATA(header), &fd, sizeof(int));
    }
    const ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) {
      return MakeStatus(absl::StatusCode::kUnavailable, "the peer has closed the connection: {}",
                        strerror(errno));
    }
    fd = -1;  // sent with the first byte
    at += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return absl::OkStatus();
}

absl::Status ReceiveMessage(int socket, void* data, size_t bytes, Instant deadline, UniqueFd* fd) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    TANDEM_RETURN_IF_ERROR(WaitReadable(socket, deadline, "no message arrived in time"));
    iovec part = {at, bytes};
    alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (received < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (received <= 0) {
      return MakeStatus(absl::StatusCode::kUnavailable, "the peer closed the connection");
    }
    ReceiveDescriptors(message, fd);
    at += received;
    bytes -= static_cast<size_t>(received);
  }
  return absl::OkStatus();
}

bool PeerClosed(int socket) {
  pollfd entry = {socket, POLLIN | POLLRDHUP, 0};
  if (poll(&entry, 1, 0) <= 0) return false;
  return (entry.revents & (POLLHUP | POLLRDHUP | POLLERR | POLLNVAL)) != 0;
}

}  // namespace tandem
