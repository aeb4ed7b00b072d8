// Who is not of the run: another process of this host at its ports, and a second worker of a rank.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <grpcpp/channel.h>

#include "common/net/channel.h"
#include "common/process/files/run_token.h"
#include "tandem/v1/controller.grpc.pb.h"
#include "tandem/v1/trainer.grpc.pb.h"
#include "tests/support/build_folder.h"
#include "tests/support/cluster_rig.h"
#include "tests/support/file_mode.h"
#include "tests/support/free_port.h"
#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"

namespace tandem::testing {
namespace {

struct PortRig : ClusterRig {
  const std::string address = fmt::format("127.0.0.1:{}", FreePort("127.0.0.1"));
  const RpcSecurity token{.token_file = RunTokenPath(run_dir())};

  PortRig() { Set("cluster.listen", address); }

  // Waits until the run's own port answers tandemctl, which finds address and token by itself.
  void AwaitPaused(TestProcess& launcher) {
    WaitUntil("the run to wait", [&] {
      REQUIRE(launcher.running());
      const CtlResult status = Ctl({"status", "--json"});
      return status.code == 0 && status.output.find("\"paused\"") != std::string::npos;
    });
  }
};

grpc::Status StatusOfRun(const std::string& address,
                         const RpcSecurity& security,
                         v1::GetStatusResponse* response) {
  const auto stub = v1::TandemService::NewStub(MakeChannel(address, security).value());
  grpc::ClientContext context;
  SetDeadline(context, kPatience);
  return stub->GetStatus(&context, {}, response);
}

grpc::Status StatusOfTrainer(const std::string& address, const RpcSecurity& security) {
  const auto stub = v1::TrainerService::NewStub(MakeChannel(address, security).value());
  grpc::ClientContext context;
  SetDeadline(context, kPatience);
  v1::TrainerStatusResponse response;
  return stub->GetStatus(&context, {}, &response);
}

// The processes of the rig in whose command line or environment `secret` stands.
std::vector<std::string> WhoShows(const ClusterRig& rig, const std::string& secret) {
  std::vector<std::string> found;
  for (const std::string& process : rig.Running()) {
    const std::string pid = process.substr(0, process.find(' '));
    for (const char* file : {"cmdline", "environ"}) {
      if (FileText("/proc/" + pid + "/" + file).find(secret) != std::string::npos) {
        found.push_back(process);
      }
    }
  }
  return found;
}

TEST_CASE("A run on a loopback port answers to its token alone, and tandemctl finds that") {
  PortRig rig;
  TestProcess& launcher = rig.Launch({"--start-paused"});
  rig.AwaitPaused(launcher);
  REQUIRE(ModeOf(rig.run_dir()) == 0700);
  REQUIRE(ModeOf(rig.token.token_file) == 0600);
  const std::string token = ReadRunToken(rig.token.token_file).value();
  REQUIRE(WhoShows(rig, rig.address).size() >= 3);  // it would be seen
  REQUIRE(WhoShows(rig, token).empty());

  v1::GetStatusResponse status;
  const grpc::Status stranger = StatusOfRun(rig.address, {}, &status);
  REQUIRE(stranger.error_code() == grpc::StatusCode::UNAUTHENTICATED);
  REQUIRE(stranger.error_message().find(rig.token.token_file) != std::string::npos);
  REQUIRE(StatusOfRun(rig.address, rig.token, &status).ok());
  std::string trainer;
  for (const v1::WorkerStatus& worker : status.workers()) {
    if (worker.worker().role() == v1::ROLE_TRAINER) trainer = worker.address();
  }
  REQUIRE(trainer.starts_with("127.0.0.1:"));
  REQUIRE(StatusOfTrainer(trainer, {}).error_code() == grpc::StatusCode::UNAUTHENTICATED);
  REQUIRE(StatusOfTrainer(trainer, rig.token).ok());

  // The last --token-file counts: one that is not a token's, and the token of another run.
  const auto no_token = rig.Ctl({"--token-file", rig.config_file(), "status"});
  REQUIRE(no_token.code == 1);
  REQUIRE(no_token.output.find(rig.config_file()) != std::string::npos);
  const testing::TempDir other;
  REQUIRE(MakeRunToken(other.path() / "token").ok());
  const auto elsewhere = rig.Ctl({"--token-file", (other.path() / "token").string(), "status"});
  REQUIRE(elsewhere.code == 1);
  REQUIRE(elsewhere.output.find(rig.token.token_file) != std::string::npos);
  const auto ran = rig.Ctl({"run"});
  INFO(ran.output << rig.Log("launcher") << rig.Log("controller"));
  REQUIRE(ran.code == 0);
  REQUIRE(rig.Ctl({"stop"}).code == 0);
  REQUIRE(launcher.Wait() == 0);
  REQUIRE(rig.Metrics().size() == 3);
  REQUIRE_FALSE(rig.HasRunFile("token"));  // it opens nothing any more
  REQUIRE(rig.LeftBehind() == "");
}

TEST_CASE("A controller that is killed makes a new token, which its workers take up") {
  PortRig rig;
  TestProcess& launcher = rig.Launch({"--start-paused"});
  rig.AwaitPaused(launcher);
  const std::string before = ReadRunToken(rig.token.token_file).value();
  const auto pids = nlohmann::json::parse(rig.RunFile("pids.json"));
  for (const auto& process : pids.at("processes")) {
    if (process.at("role") == "controller") kill(process.at("pid").get<pid_t>(), SIGKILL);
  }
  WaitUntil("a new token", [&] {
    const auto now = ReadRunToken(rig.token.token_file);
    return now.ok() && *now != before;
  });
  rig.AwaitPaused(launcher);
  REQUIRE(rig.Ctl({"run"}).code == 0);
  REQUIRE(rig.Ctl({"stop"}).code == 0);
  REQUIRE(launcher.Wait() == 0);
  REQUIRE(rig.Log("trainer").find("Registered again") != std::string::npos);
  REQUIRE(rig.Log("rollout").find("Registered again") != std::string::npos);
}

// Files and folders of the run that other users may write, or could were the directory open.
std::vector<std::string> WritableByOthers(const std::string& run_dir) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run_dir)) {
    if (entry.is_symlink() || (ModeOf(entry.path()) & 0022) == 0) continue;
    found.push_back(entry.path().string());
  }
  return found;
}

TEST_CASE("A second worker of a rank is refused, and the first trains on") {
  const UmaskOf open(0);
  ClusterRig rig;
  TestProcess& launcher = rig.Launch({"--start-paused"});
  rig.WaitForStatus("the run to wait", [](const auto& s) { return s.state() == "paused"; });
  TestProcess second(
      {.argv = {BuildFolder("bin") + "/tandem-rollout", "--controller", rig.controller_address(),
                "--rank", "0", "--listen", "127.0.0.1:0", "--join-timeout", "1"},
       .output = rig.dir() / "second.log"});
  REQUIRE(second.Wait() == 64);
  const std::string said = FileText(rig.dir() / "second.log");
  INFO(said);
  REQUIRE(said.find("rollout 0 is held by process ") != std::string::npos);
  REQUIRE(rig.Ctl({"run"}).code == 0);
  REQUIRE(rig.Status()->restarts() == 0);
  REQUIRE(WritableByOthers(rig.run_dir()).empty());
  REQUIRE(rig.Ctl({"stop"}).code == 0);
  REQUIRE(launcher.Wait() == 0);
}

}  // namespace
}  // namespace tandem::testing
