// A run over mutual TLS, with certificates made here; who has none, or one of another role, is
// refused.
#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "tests/support/build_folder.h"
#include "tests/support/certificates.h"
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

// What the host's certificate names: the address on which the controller listens, that which
// workers announce, as they reach the controller from it, and all roles of what the launcher
// starts.
std::string HostNames() {
  return fmt::format("IP:{},{},URI:spiffe://tandem/demo/trainer,URI:spiffe://tandem/demo/rollout",
                     OwnHostText(), NamesOf("controller"));
}

std::vector<std::string> TlsFlags(const RpcSecurity& files) {
  return {"--tls-cert", files.cert, "--tls-key", files.key, "--tls-ca", files.ca};
}

struct TlsRig : ClusterRig {
  const Authority ours{dir(), "ours"};
  const RpcSecurity host = ours.Issue("host", HostNames());
  const RpcSecurity driver = ours.Issue("operator", NamesOf("operator"));
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
    Set("cluster.tls.cert", host.cert);
    Set("cluster.tls.key", host.key);
    Set("cluster.tls.ca", host.ca);
  }
};

TEST_CASE("a run over mutual TLS finishes: users read it, operators drive it") {
  TlsRig rig;
  TestProcess& launcher = rig.Launch({"--start-paused"});
  const auto as = [&](const RpcSecurity& files, std::vector<std::string> command) {
    std::vector<std::string> all = {"--address", rig.address};
    all.insert(all.end(), command.begin(), command.end());
    for (const std::string& flag : TlsFlags(files)) all.push_back(flag);
    return rig.Ctl(all);
  };
  WaitUntil("the controller to answer over TLS", [&] {
    REQUIRE(launcher.running());
    return as(rig.driver, {"status"}).code == 0;
  });
  const RpcSecurity user = rig.ours.Issue("user", NamesOf("user"));
  REQUIRE(as(user, {"status"}).code == 0);
  for (const RpcSecurity& other : {user, rig.host}) {
    const ClusterRig::CtlResult refused = as(other, {"stop"});
    REQUIRE(refused.code == 1);
    REQUIRE(refused.output.find("TandemService/Stop needs the role operator") != std::string::npos);
  }
  const ClusterRig::CtlResult ran = as(rig.driver, {"run"});
  INFO(ran.output << rig.Log("launcher") << rig.Log("controller"));
  REQUIRE(ran.code == 0);
  REQUIRE(as(rig.driver, {"stop"}).code == 0);
  REQUIRE(launcher.Wait() == 0);
  REQUIRE(rig.Metrics().size() == 3);
  REQUIRE(rig.LeftBehind() == "");
}

// A folder of certificates that tandemctl makes.
struct CertificatesOfCtl {
  ClusterRig& rig;
  std::string folder = rig.dir() / "certs";

  explicit CertificatesOfCtl(ClusterRig& of) : rig(of) {
    Make({"certs", "init", folder, "--project", "tried"});
  }
  RpcSecurity Issue(const std::string& role) const { return Issue(role, role, {}); }
  RpcSecurity Issue(const std::string& role, int rank) const {
    return Issue(role, fmt::format("{}-{}", role, rank), {"--rank", std::to_string(rank)});
  }

 private:
  RpcSecurity Issue(const std::string& role,
                    const std::string& name,
                    const std::vector<std::string>& more) const {
    std::vector<std::string> command = {"certs",  "issue",       folder,   "--role",   role,
                                        "--host", OwnHostText(), "--host", "127.0.0.1"};
    command.insert(command.end(), more.begin(), more.end());
    Make(command);
    const std::string base = folder + "/" + name;
    return {.cert = base + ".pem", .key = base + ".key", .ca = folder + "/ca.pem"};
  }
  void Make(const std::vector<std::string>& command) const {
    const ClusterRig::CtlResult made = rig.Ctl(command);
    INFO(made.output);
    REQUIRE(made.code == 0);
  }
};

TEST_CASE("processes with certificates that tandemctl made for their role train, check and save") {
  TlsRig rig;
  const CertificatesOfCtl certificates(rig);
  const RpcSecurity own = certificates.Issue("controller");
  rig.Set("cluster.tls.cert", own.cert);
  rig.Set("cluster.tls.key", own.key);
  rig.Set("cluster.tls.ca", own.ca);
  rig.Set("weight_sync.check", "always");
  TestProcess& controller = rig.StartController();
  std::vector<std::string> status = {"--address", rig.address, "status"};
  for (const std::string& flag : TlsFlags(certificates.Issue("user"))) status.push_back(flag);
  WaitUntil("the controller to answer a user, while it waits for workers", [&] {
    REQUIRE(controller.running());
    return rig.Ctl(status).code == 0;
  });
  TestProcess trainer = rig.StartWorker("trainer", TlsFlags(certificates.Issue("trainer", 0)));
  // On all interfaces, as on a host of its own: it announces the address of the route.
  std::vector<std::string> everywhere = TlsFlags(certificates.Issue("rollout", 0));
  everywhere.insert(everywhere.end(), {"--listen", "0.0.0.0:0"});
  TestProcess rollout = rig.StartWorker("rollout", everywhere);
  const int code = controller.Wait();
  INFO(rig.Log("controller") << rig.Log("trainer") << rig.Log("rollout"));
  REQUIRE(code == 0);
  REQUIRE(trainer.Wait() == 0);
  REQUIRE(rollout.Wait() == 0);
  REQUIRE(rig.Metrics().size() == 3);
  for (const char* role : {"controller", "trainer", "rollout"}) {
    REQUIRE(rig.Log(role).find("needs the role") == std::string::npos);
  }
  REQUIRE(rig.Log("controller").find("0.0.0.0") == std::string::npos);
}

TEST_CASE("weights go over TCP with each role's certificate, or in clear text if that is allowed") {
  const bool data_tls = GENERATE(true, false);
  TlsRig rig;
  rig.Set("weight_sync.transport", "tcp");
  rig.Set("cluster.data_tls", data_tls ? "true" : "false");
  TestProcess& controller = rig.StartController();
  TestProcess trainer =
      rig.StartWorker("trainer", TlsFlags(rig.ours.Issue("trainer", NamesOf("trainer/0"))));
  TestProcess rollout =
      rig.StartWorker("rollout", TlsFlags(rig.ours.Issue("rollout", NamesOf("rollout/0"))));
  const int code = controller.Wait();
  INFO(rig.Log("controller") << rig.Log("trainer") << rig.Log("rollout"));
  REQUIRE(code == 0);
  REQUIRE(trainer.Wait() == 0);
  REQUIRE(rollout.Wait() == 0);
  REQUIRE(rig.Metrics().size() == 3);
  const std::string sent = rig.Log("trainer"), received = rig.Log("rollout");
  REQUIRE(sent.find("buckets, over TCP") != std::string::npos);
  REQUIRE(received.find(data_tls ? ", with TLS" : ", in clear text") != std::string::npos);
  for (const std::string& log : {sent, received}) {
    REQUIRE((log.find("in clear text, for whoever") == std::string::npos) == data_tls);
  }
}

TEST_CASE("a worker or client without the right certificate is refused and told why") {
  TlsRig rig;
  TestProcess& controller = rig.StartController();
  TestProcess plain = rig.StartWorker("trainer", {});
  const Authority foreign(rig.dir(), "foreign");
  TestProcess other = rig.StartWorker("rollout", TlsFlags(foreign.Issue("host", HostNames())));
  const int plain_code = plain.Wait(), other_code = other.Wait();
  INFO(rig.Log("trainer") << rig.Log("rollout") << rig.Log("controller"));
  REQUIRE(plain_code == 64);
  REQUIRE(other_code == 64);
  REQUIRE(rig.Log("trainer").find("--tls-ca") != std::string::npos);
  REQUIRE(rig.Log("rollout").find("certificate") != std::string::npos);
  const ClusterRig::CtlResult status = rig.Ctl({"--address", rig.address, "status"});
  REQUIRE(status.code == 69);
  REQUIRE(status.output.find("--tls-cert") != std::string::npos);
  // Of the authority, but not of the role.
  TestProcess trainer =
      rig.StartWorker("trainer", TlsFlags(rig.ours.Issue("rollout", NamesOf("rollout"))));
  REQUIRE(trainer.Wait() == 64);
  REQUIRE(rig.Log("trainer").find("spiffe://tandem/demo/rollout") != std::string::npos);
  // Of the role, but where it does not listen.
  std::vector<std::string> lost = TlsFlags(rig.ours.Issue("trainer", NamesOf("trainer/0")));
  lost.insert(lost.end(), {"--advertise", "127.77.1.2"});
  TestProcess unreachable = rig.StartWorker("trainer", lost);
  REQUIRE(unreachable.Wait() == 64);
  INFO(rig.Log("trainer"));
  REQUIRE(rig.Log("trainer").find("announces 127.77.1.2:") != std::string::npos);
  REQUIRE(rig.Log("trainer").find("does not reach it") != std::string::npos);
  controller.Signal(SIGTERM);
  controller.Wait();
}

}  // namespace
}  // namespace tandem::testing
