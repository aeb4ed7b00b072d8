// A run over mutual TLS, with certificates made here; a client without one is refused.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "tests/support/build_folder.h"
#include "tests/support/cluster_rig.h"
#include "tests/support/free_port.h"

namespace tandem::testing {
namespace {

// A loopback address of this process's own: nobody else takes a port on it between a look whether
// it is free and its use by the controller. Never 127.0.0.1, as the first part is at least 1.
uint32_t OwnHost() {
  const auto pid = static_cast<uint32_t>(getpid());  // of 22 bits at most
  return (127u << 24) | (pid + (1u << 16));
}
std::string OwnHostText() {
  const uint32_t host = OwnHost();
  return fmt::format("{}.{}.{}.{}", host >> 24, host >> 16 & 255, host >> 8 & 255, host & 255);
}

void OpenSsl(const std::string& arguments) {
  const std::string command = "openssl " + arguments + " 2>/dev/null";
  INFO(command);
  REQUIRE(std::system(command.c_str()) == 0);
}

// An authority, and one certificate of it for the controller, which listens on this process's
// address, and for workers, which announce the address from which they reach it: 127.0.0.1.
struct Certificates {
  std::string cert, key, ca;

  explicit Certificates(const std::string& prefix)
      : cert(prefix + "-cert.pem"), key(prefix + "-key.pem"), ca(prefix + "-ca.pem") {
    const std::string make = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    OpenSsl(fmt::format("req -x509 {} -keyout {}-ca.key -out {} -subj /CN=authority -days 2", make,
                        prefix, ca));
    OpenSsl(fmt::format("req {} -keyout {} -out {}.csr -subj /CN=host", make, key, prefix));
    std::ofstream(prefix + ".ext") << "subjectAltName=IP:127.0.0.1,IP:" << OwnHostText() << "\n";
    OpenSsl(
        fmt::format("x509 -req -in {0}.csr -CA {1} -CAkey {0}-ca.key -CAcreateserial "
                    "-extfile {0}.ext -days 2 -out {2}",
                    prefix, ca, cert));
  }
  std::vector<std::string> Flags() const {
    return {"--tls-cert", cert, "--tls-key", key, "--tls-ca", ca};
  }
};

void SkipWithoutOpenSsl() {
  if (std::system("openssl version >/dev/null 2>&1") == 0) return;
  std::fputs("skipped: the openssl program is not installed\n", stderr);
  std::exit(77);
}

struct TlsRig : ClusterRig {
  const Certificates certificates{(dir() / "ours").string()};
  const std::string address = fmt::format("{}:{}", OwnHostText(), FreePort(OwnHostText()));

  TestProcess StartWorker(const std::string& role, const std::vector<std::string>& tls_flags) {
    ProcessOptions options{
        .argv = {BuildFolder("bin") + "/tandem-" + role, "--controller", address, "--rank", "0"},
        .output = fmt::format("{}/logs/{}-0.log", run_dir(), role)};
    options.argv.insert(options.argv.end(), tls_flags.begin(), tls_flags.end());
    return TestProcess(std::move(options));
  }

  TlsRig() {
    Set("cluster.listen", address);
    Set("cluster.tls.cert", certificates.cert);
    Set("cluster.tls.key", certificates.key);
    Set("cluster.tls.ca", certificates.ca);
  }
};

TEST_CASE("a run over mutual TLS finishes, and tandemctl reads it with a certificate") {
  SkipWithoutOpenSsl();
  TlsRig rig;
  TestProcess& launcher = rig.Launch({"--start-paused"});
  std::vector<std::string> run = {"--address", rig.address, "run", "0"};
  for (const std::string& flag : rig.certificates.Flags()) run.push_back(flag);
  WaitUntil("the controller to answer over TLS", [&] {
    REQUIRE(launcher.running());
    std::vector<std::string> status = run;
    status[2] = "status";
    status.erase(status.begin() + 3);
    return rig.Ctl(status).code == 0;
  });
  const ClusterRig::CtlResult ran = rig.Ctl(run);
  INFO(ran.output << rig.Log("launcher") << rig.Log("controller"));
  REQUIRE(ran.code == 0);
  std::vector<std::string> stop = run;
  stop[2] = "stop";
  stop.erase(stop.begin() + 3);
  REQUIRE(rig.Ctl(stop).code == 0);
  REQUIRE(launcher.Wait() == 0);
  REQUIRE(rig.Metrics().size() == 3);
  REQUIRE(rig.LeftBehind() == "");
}

TEST_CASE("a worker or client without the right certificate is refused and told why") {
  SkipWithoutOpenSsl();
  TlsRig rig;
  TestProcess& controller = rig.StartController();
  TestProcess plain = rig.StartWorker("trainer", {});
  const Certificates foreign((rig.dir() / "foreign").string());
  TestProcess other = rig.StartWorker("rollout", foreign.Flags());
  const int plain_code = plain.Wait(), other_code = other.Wait();
  INFO(rig.Log("trainer") << rig.Log("rollout") << rig.Log("controller"));
  REQUIRE(plain_code == 64);
  REQUIRE(other_code == 64);
  REQUIRE(rig.Log("trainer").find("--tls-ca") != std::string::npos);
  REQUIRE(rig.Log("rollout").find("certificate") != std::string::npos);
  const ClusterRig::CtlResult status = rig.Ctl({"--address", rig.address, "status"});
  REQUIRE(status.code == 69);
  REQUIRE(status.output.find("--tls-cert") != std::string::npos);
  controller.Signal(SIGTERM);
  controller.Wait();
}

}  // namespace
}  // namespace tandem::testing
