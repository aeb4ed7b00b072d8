#include "deploy/launcher/slurm/controller_place.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/status.h"
#include "common/net/addresses/announced_address.h"
#include "common/process/local_socket.h"
#include "common/tcp/certificate_folder.h"
#include "common/tcp/tcp_address.h"

namespace tandem {
namespace {

constexpr int kFirstPort = 20'000;
constexpr int kPortsToTry = 200;

// The lowest port that the kernel gives to a socket which asks for none.
int FirstPortOfTheKernel() {
  int first = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first;
  return first > 0 ? first : 32'768;
}

bool IsFree(const std::string& address) {
  const auto resolved = ResolveTcpAddress(address);
  if (!resolved.ok()) return false;
  const ResolvedAddress& own = resolved->front();
  const UniqueFd fd(socket(own.get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // As servers do: connections of a controller that has ended do not keep its port.
  const int yes = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  return fd.valid() && bind(fd.get(), own.get(), own.bytes) == 0;
}

absl::StatusOr<std::string> HostFor(const std::string& other, const std::string& interface) {
  if (interface.empty()) return OwnHostTowards(JoinAddress(other, 1));
  TANDEM_ASSIGN_OR_RETURN(
      const std::string address,
      AnnouncedAddress("0.0.0.0:1", {.interface = interface}, JoinAddress(other, 1)));
  TANDEM_ASSIGN_OR_RETURN(const TcpAddress parts, ParseTcpAddress(address));
  return parts.host;
}

}  // namespace

absl::StatusOr<std::string> ControllerAddressFor(const std::string& other,
                                                 const std::string& interface,
                                                 int seed) {
  const absl::StatusOr<std::string> host = HostFor(other, interface);
  if (!host.ok()) {
    return Annotate(host.status(),
                    fmt::format("--slurm: where the controller is reached from {} is not clear: "
                                "set cluster.listen to an address of this host, with cluster.tls",
                                other));
  }
  // Where the kernel begins low and leaves no ports below, any may do.
  const int kernel = FirstPortOfTheKernel();
  const int end = kernel > kFirstPort + kPortsToTry ? kernel : 65'536;
  const int first = kFirstPort + seed % (end - kFirstPort);
  for (int tried = 0, port = first; tried < kPortsToTry; ++tried, ++port) {
    if (port >= end) port = kFirstPort;
    if (std::string address = JoinAddress(*host, port); IsFree(address)) return address;
  }
  return MakeStatus(absl::StatusCode::kResourceExhausted,
                    "--slurm: no port of {} from {} on is free for the controller: set "
                    "cluster.listen to one that is",
                    *host, first);
}

absl::Status MakeJobCertificates(const std::string& dir,
                                 const std::string& address,
                                 const std::vector<std::string>& nodes,
                                 absl::Time now) {
  std::error_code error;
  std::filesystem::remove_all(dir, error);  // those of an earlier life are for other nodes
  TANDEM_RETURN_IF_ERROR(MakeAuthorityFolder({.dir = dir}, now));
  TANDEM_ASSIGN_OR_RETURN(const TcpAddress controller, ParseTcpAddress(address));
  const std::array<std::pair<const char*, std::vector<std::string>>, 5> certificates = {{
      {"controller", {controller.host}},
      {"trainer", nodes},
      {"rollout", nodes},
      {"agent", {}},
      {"operator", {}},
  }};
  for (const auto& [role, hosts] : certificates) {
    const auto issued = IssueCertificate({.dir = dir, .roles = {role}, .hosts = hosts}, now);
    if (!issued.ok()) return Annotate(issued.status(), fmt::format("the certificate {}", role));
  }
  std::filesystem::remove(dir + "/ca.key", error);  // signs nothing more
  return absl::OkStatus();
}

}  // namespace tandem
