// Two ends of a TCP connection in one process.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "common/base/clock.h"
#include "common/tcp/tcp_listener.h"
#include "tests/support/certificates.h"
#include "tests/support/patience.h"

namespace tandem::testing {

inline Instant Patiently() { return RealClock().Now() + kPatience; }

inline std::unique_ptr<TcpListener> ListenHere(TcpSecurity security = {}) {
  return TcpListener::Listen("127.0.0.1:0", std::move(security)).value();
}

inline std::string AddressOf(const TcpListener& listener) {
  return fmt::format("127.0.0.1:{}", listener.port());
}

struct TcpPair {
  absl::StatusOr<std::unique_ptr<TcpConnection>> dialled, accepted;
};

// Both ends, or why an end has none.
inline TcpPair Meet(TcpListener& listener, const TcpSecurity& dials = {}) {
  TcpPair pair;
  std::thread accepts([&] { pair.accepted = listener.Accept(Patiently()); });
  pair.dialled = DialTcp(AddressOf(listener), dials, Patiently());
  accepts.join();
  return pair;
}

// For a peer that is a trainer of the project "demo".
inline TcpSecurity DataSecurity(const RpcSecurity& files) {
  return {files.cert, files.key, files.ca, "demo", {"trainer"}};
}

}  // namespace tandem::testing
