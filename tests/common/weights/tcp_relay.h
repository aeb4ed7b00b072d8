// A wire between a trainer and its rollout that a test can damage.
#pragma once

#include <cstdint>
#include <string>
#include <thread>

#include "common/process/local_socket.h"

namespace tandem::testing {

// Where what the trainer sends goes wrong, counted in its bytes; -1: nowhere.
struct WireFault {
  int64_t flip_at = -1;  // one bit of this byte
  int64_t cut_at = -1;   // both ends are closed before it
  int64_t hold_at = -1;  // it and what follows are kept back, until the wire is destroyed
};

// Passes the bytes of one connection on, to a port of 127.0.0.1. Throws std::runtime_error where it
// cannot listen.
class TcpRelay {
 public:
  TcpRelay(const std::string& target, const WireFault& fault);
  ~TcpRelay();
  const std::string& address() const { return address_; }

 private:
  void Run();
  // Returns false when the connection is over.
  bool Forward(int from, int to, bool damaged);

  const WireFault fault_;
  int target_port_ = 0;
  std::string address_;
  UniqueFd listener_;
  int64_t passed_ = 0;
  std::jthread thread_;
};

}  // namespace tandem::testing
