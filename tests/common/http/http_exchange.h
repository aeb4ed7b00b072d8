// A client of HTTP that sends what a test gives it, also what no client should send.
#pragma once

#include <string>

#include <arpa/inet.h>
#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

namespace tandem::testing {

// One connection to a port of 127.0.0.1.
class HttpConnection {
 public:
  explicit HttpConnection(int port) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval patience = {.tv_sec = 120};  // a server that does not answer fails its test
    REQUIRE(setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0);
    REQUIRE(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  }
  ~HttpConnection() { close(socket_); }
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  // A peer that has closed its end takes no more; what it said before can still be read.
  void Send(const std::string& bytes) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t more = send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (more <= 0) return;
      sent += static_cast<size_t>(more);
    }
  }

  // Header and body of the next answer, by its Content-Length; what came before the connection
  // ended.
  std::string Receive() {
    size_t end = std::string::npos;
    while ((end = rest_.find("\r\n\r\n")) == std::string::npos) {
      if (!ReadMore()) return Take(rest_.size());
    }
    const std::string kLength = "Content-Length: ";
    const size_t at = rest_.find(kLength);
    const size_t length = at < end ? std::stoul(rest_.substr(at + kLength.size())) : 0;
    const size_t whole = end + 4 + (expects_body_ ? length : 0);
    while (rest_.size() < whole) {
      if (!ReadMore()) return Take(rest_.size());
    }
    return Take(whole);
  }

  // As Receive, of an answer to HEAD.
  std::string ReceiveHeader() {
    expects_body_ = false;
    std::string header = Receive();
    expects_body_ = true;
    return header;
  }

  // Whether the peer has ended the connection, which it waits for.
  bool IsEnded() { return rest_.empty() && !ReadMore(); }

  std::string Get(const std::string& target, const std::string& headers = "") {
    Send(fmt::format("GET {} HTTP/1.1\r\nHost: 127.0.0.1\r\n{}\r\n", target, headers));
    return Receive();
  }

 private:
  bool ReadMore() {
    char bytes[4096];
    const ssize_t got = recv(socket_, bytes, sizeof(bytes), 0);
    if (got <= 0) return false;
    rest_.append(bytes, static_cast<size_t>(got));
    return true;
  }
  std::string Take(size_t bytes) {
    std::string taken = rest_.substr(0, bytes);
    rest_.erase(0, bytes);
    return taken;
  }

  const int socket_;
  bool expects_body_ = true;
  std::string rest_;
};

// The body of an answer.
inline std::string BodyOf(const std::string& answer) {
  const size_t end = answer.find("\r\n\r\n");
  return end == std::string::npos ? "" : answer.substr(end + 4);
}

}  // namespace tandem::testing
