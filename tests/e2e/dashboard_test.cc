// The dashboard of a run that goes on, and what it costs the run: nothing that changes a bit.
#include <atomic>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "tests/common/http/http_exchange.h"
#include "tests/e2e/recovery.h"
#include "tests/support/text.h"

namespace tandem::testing {
namespace {

constexpr int kSteps = 3;

// The part of a dashboard's printed address from `begin` to before `end`.
std::string PartOf(const std::string& text, const std::string& begin, const std::string& end) {
  const size_t at = text.find(begin);
  if (at == std::string::npos) return "";
  const size_t from = at + begin.size();
  return text.substr(from, text.find_first_of(end, from) - from);
}

// How to ask the dashboard of a rig's controller, which has printed where it is.
struct Address {
  int port = 0;
  std::string headers;
};

Address WaitForDashboard(const ClusterRig& rig) {
  std::string printed;
  WaitUntil("the dashboard's address", [&] {
    printed = PartOf(rig.Log("launcher"), "dashboard: http://127.0.0.1:", " \n");
    return printed.size() > 64;
  });
  return {std::stoi(printed),
          fmt::format("Authorization: Bearer {}\r\n", printed.substr(printed.find("#t=") + 3))};
}

nlohmann::json Ask(HttpConnection& connection, const Address& at, const std::string& target) {
  const std::string answer = connection.Get(target, at.headers);
  INFO(answer);
  REQUIRE(Has(answer, "HTTP/1.1 200"));
  return nlohmann::json::parse(BodyOf(answer));
}

Outcome RunWith(ClusterRig& rig) {
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher"));
  REQUIRE(code == 0);
  return OutcomeOf(rig, kSteps);
}

}  // namespace

TEST_CASE("the dashboard of a controller shows its run while it goes on, and ends with it") {
  ClusterRig rig;
  rig.Set("ui.listen", "127.0.0.1:0");
  rig.SetFault("controller", 0, "generate", 3, "wait");
  TestProcess& launcher = rig.Launch();
  rig.WaitForFault("the third step", launcher);
  const Address at = WaitForDashboard(rig);
  HttpConnection connection(at.port);
  const nlohmann::json runs = Ask(connection, at, "/api/v1/runs")["runs"];
  REQUIRE(runs.size() == 1);
  REQUIRE(runs[0]["status"]["state"] == "running");
  REQUIRE(runs[0]["status"]["step"] == "2");
  const std::string run = "/api/v1/runs/" + runs[0]["id"].get<std::string>();
  REQUIRE(Ask(connection, at, run + "/steps")["steps"].size() == 2);
  const nlohmann::json samples = Ask(connection, at, run + "/samples?limit=1");
  REQUIRE(samples["step"] == "2");
  const nlohmann::json tokens =
      Ask(connection, at,
          fmt::format("{}/samples/2/{}/tokens", run,
                      samples["samples"][0]["sample_id"].get<std::string>()));
  REQUIRE(tokens["texts"].size() == tokens["ids"].size());
  REQUIRE(tokens["values"]["log_probs"].size() == tokens["ids"].size());
  // Its events have no address in which the token would stay.
  REQUIRE_FALSE(Has(Ask(connection, at, run + "/events").dump(), "#t="));
  REQUIRE(FileText(rig.run_dir() + "/ui.token").substr(0, 64) ==
          PartOf(at.headers, "Bearer ", "\r"));
  rig.ReleaseFault();
  REQUIRE(launcher.Wait() == 0);
  REQUIRE_FALSE(std::filesystem::exists(rig.run_dir() + "/ui.token"));
}

TEST_CASE("a run that eight clients watch has the bits of one that nobody watches") {
  ClusterRig alone, watched;
  const Outcome expected = RunWith(alone);
  watched.Set("ui.listen", "auto");
  TestProcess& launcher = watched.Launch();
  const Address at = WaitForDashboard(watched);
  std::atomic<bool> over = false;
  std::atomic<int64_t> answered = 0;
  std::vector<std::unique_ptr<HttpConnection>> connections;
  for (int i = 0; i < 8; ++i) connections.push_back(std::make_unique<HttpConnection>(at.port));
  std::vector<std::thread> clients;
  clients.reserve(connections.size());
  for (const auto& connection : connections) {
    const char* const what = clients.size() % 2 == 0 ? "steps" : "samples";
    clients.emplace_back([&, what, connection = connection.get()] {
      while (!over) {
        const std::string answer =
            connection->Get(fmt::format("/api/v1/runs/run/{}", what), at.headers);
        if (answer.empty()) return;  // the controller has ended
        if (Has(answer, "HTTP/1.1 200")) ++answered;
      }
    });
  }
  const int code = launcher.Wait();
  over = true;
  for (std::thread& client : clients) client.join();
  INFO(watched.Log("launcher"));
  REQUIRE(code == 0);
  REQUIRE(answered > 8);
  const Outcome outcome = OutcomeOf(watched, kSteps);
  REQUIRE(outcome.weights == expected.weights);
  REQUIRE(outcome.metrics == expected.metrics);
}

TEST_CASE("a port that is taken ends a run before it begins, by name") {
  ClusterRig rig;
  rig.Set("ui.listen", "auto");
  rig.SetFault("controller", 0, "generate", 1, "wait");
  TestProcess& first = rig.Launch();
  rig.WaitForFault("the first step", first);
  const int taken = WaitForDashboard(rig).port;
  ClusterRig second;
  second.Set("ui.listen", fmt::format("127.0.0.1:{}", taken));
  const int code = second.Launch().Wait();
  INFO(second.Log("launcher"));
  REQUIRE(code != 0);
  REQUIRE(Has(second.Log("launcher"), fmt::format("cannot listen on 127.0.0.1, port {}", taken)));
  rig.ReleaseFault();
  REQUIRE(first.Wait() == 0);
}

}  // namespace tandem::testing
