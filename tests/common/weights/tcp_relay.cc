#include "tests/common/weights/tcp_relay.h"

#include <array>
#include <stdexcept>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace tandem::testing {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

bool SendAll(int to, const char* data, ssize_t bytes) {
  while (bytes > 0) {
    const ssize_t sent = send(to, data, static_cast<size_t>(bytes), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    data += sent;
    bytes -= sent;
  }
  return true;
}

}  // namespace

TcpRelay::TcpRelay(const std::string& target, const WireFault& fault)
    : fault_(fault), target_port_(std::stoi(target.substr(target.rfind(':') + 1))) {
  listener_.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = Loopback(0);
  socklen_t bytes = sizeof(address);
  if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0 ||
      listen(listener_.get(), 4) != 0 ||
      getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    throw std::runtime_error("the relay cannot listen");
  }
  address_ = fmt::format("127.0.0.1:{}", ntohs(address.sin_port));
  thread_ = std::jthread([this] { Run(); });
}

TcpRelay::~TcpRelay() { shutdown(listener_.get(), SHUT_RDWR); }

bool TcpRelay::Forward(int from, int to, bool damaged) {
  std::array<char, 4096> buffer{};
  const ssize_t came = recv(from, buffer.data(), buffer.size(), 0);
  if (came <= 0) return false;
  if (!damaged) return SendAll(to, buffer.data(), came);
  const int64_t flip = fault_.flip_at - passed_, cut = fault_.cut_at - passed_,
                hold = fault_.hold_at - passed_;
  passed_ += came;
  if (fault_.flip_at >= 0 && flip >= 0 && flip < came) buffer[static_cast<size_t>(flip)] ^= 0x04;
  if (fault_.cut_at >= 0 && cut < came) {
    if (cut > 0) SendAll(to, buffer.data(), cut);
    return false;
  }
  if (fault_.hold_at >= 0 && hold < came) {
    return hold <= 0 || SendAll(to, buffer.data(), hold);
  }
  return SendAll(to, buffer.data(), came);
}

void TcpRelay::Run() {
  const UniqueFd trainer(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!trainer.valid()) return;
  const UniqueFd rollout(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in to = Loopback(target_port_);
  if (connect(rollout.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) return;
  while (true) {
    // The listener's end is this relay's.
    std::array<pollfd, 3> ends = {pollfd{trainer.get(), POLLIN, 0},
                                  pollfd{rollout.get(), POLLIN, 0},
                                  pollfd{listener_.get(), POLLRDHUP, 0}};
    if (poll(ends.data(), ends.size(), -1) < 0 || ends[2].revents != 0) return;
    if (ends[0].revents != 0 && !Forward(trainer.get(), rollout.get(), true)) return;
    if (ends[1].revents != 0 && !Forward(rollout.get(), trainer.get(), false)) return;
  }
}

}  // namespace tandem::testing
