#include "common/net/security/call_roles.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <google/protobuf/descriptor.h>

#include "tandem/v1/controller.pb.h"
#include "tandem/v1/reward.pb.h"
#include "tandem/v1/rollout.pb.h"
#include "tandem/v1/trainer.pb.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Says;

// The full names of the services that the proto files declare.
std::vector<std::string> DeclaredServices() {
  std::vector<std::string> names;
  const std::regex declared("^service (\\w+) ");
  for (const auto& entry : std::filesystem::directory_iterator("proto/tandem/v1")) {
    std::ifstream file(entry.path());
    std::smatch match;
    for (std::string line; std::getline(file, line);) {
      if (std::regex_search(line, match, declared)) names.push_back("tandem.v1." + match[1].str());
    }
  }
  return names;
}

std::vector<CallerIdentity> Who(const std::vector<std::string>& uris) {
  return ParseIdentities(uris).value();
}

std::vector<CallerIdentity> WithRole(const std::string& role) {
  return Who({"spiffe://tandem/demo/" + role});
}

bool May(const std::string& role, const std::string& method) {
  return CheckMayCall(WithRole(role), {.project = "demo"}, "/tandem.v1." + method).ok();
}

}  // namespace

TEST_CASE("Each method of each service has its roles in the table", "[roles]") {
  // One message of each file, so that its descriptors are linked.
  for (const auto* file :
       {v1::RegisterRequest::descriptor()->file(), v1::ScoreRequest::descriptor()->file(),
        v1::GenerateRequest::descriptor()->file(), v1::TrainerResetRequest::descriptor()->file()}) {
    REQUIRE(file->service_count() > 0);
  }
  const std::vector<std::string> services = DeclaredServices();
  REQUIRE(services.size() == 6);
  int methods = 0;
  for (const std::string& name : services) {
    const auto* service =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
    INFO(name);
    REQUIRE(service != nullptr);
    for (int i = 0; i < service->method_count(); ++i, ++methods) {
      const std::string method = "/" + name + "/" + service->method(i)->name();
      INFO(method << " is not in the table of common/net/security/call_roles.cc");
      REQUIRE_FALSE(RolesFor(method).empty());
      REQUIRE(MethodText(method) == method);
    }
  }
  REQUIRE(methods > 30);
}

TEST_CASE("Users read, operators drive, workers make their own calls", "[roles]") {
  REQUIRE(May("user", "TandemService/ListSamples"));
  REQUIRE(May("operator", "TandemService/ListSamples"));
  for (const char* driving : {"TandemService/Stop", "TandemService/Run", "TandemService/Pause",
                              "TandemService/Evaluate", "TandemService/CheckWeights"}) {
    REQUIRE(May("operator", driving));
    for (const char* other : {"user", "controller", "trainer", "rollout"}) {
      REQUIRE_FALSE(May(other, driving));
    }
  }
  REQUIRE(May("trainer", "ClusterService/PutLogProbs"));
  REQUIRE_FALSE(May("rollout", "ClusterService/PutLogProbs"));
  REQUIRE(May("rollout", "ClusterService/Heartbeat"));
  REQUIRE(May("trainer", "RolloutService/CommitUpdate"));
  REQUIRE_FALSE(May("controller", "RolloutService/CommitUpdate"));
  REQUIRE(May("controller", "RolloutService/Generate"));
  for (const char* shared : {"GetStatus", "AbortUpdate", "GetDigests", "ReadTensor"}) {
    REQUIRE(May("controller", std::string("RolloutService/") + shared));
    REQUIRE(May("trainer", std::string("RolloutService/") + shared));
  }
  for (const char* other : {"user", "operator", "trainer", "rollout", "controller"}) {
    REQUIRE_FALSE(May(other, "AgentService/Heartbeat"));
  }
  for (const char* other : {"user", "operator", "trainer", "rollout", "agent"}) {
    REQUIRE_FALSE(May(other, "TrainerService/SaveState"));
    REQUIRE_FALSE(May(other, "RolloutService/Shutdown"));
  }
}

TEST_CASE("The least of the roles may call this and nothing else", "[roles]") {
  const auto calls_of = [](const std::string& role) {
    std::vector<std::string> calls;
    for (const std::string& name : DeclaredServices()) {
      const auto* service =
          google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
      for (int i = 0; i < service->method_count(); ++i) {
        const std::string call = service->name() + "/" + service->method(i)->name();
        if (May(role, call)) calls.push_back(call);
      }
    }
    std::sort(calls.begin(), calls.end());
    return calls;
  };
  REQUIRE(calls_of("user") ==
          std::vector<std::string>{"TandemService/Generate", "TandemService/GetStatus",
                                   "TandemService/ListSamples", "TandemService/ListSteps",
                                   "TandemService/WaitOperation"});
  REQUIRE(calls_of("rollout") ==
          std::vector<std::string>{"ClusterService/Heartbeat", "ClusterService/Register"});
  REQUIRE(calls_of("agent") == std::vector<std::string>{"AgentService/Heartbeat"});
}

TEST_CASE("A refusal names the call, the role needed and the role found", "[roles]") {
  const absl::Status refused =
      CheckMayCall(WithRole("user"), {.project = "demo"}, "/tandem.v1.TandemService/Stop");
  REQUIRE(absl::IsPermissionDenied(refused));
  for (const char* part : {"/tandem.v1.TandemService/Stop", "role operator of project demo",
                           "has spiffe://tandem/demo/user"}) {
    REQUIRE(Says(refused, part));
  }
  const absl::Status nobody =
      CheckMayCall({}, {.project = "demo"}, "/tandem.v1.TandemService/GetStatus");
  REQUIRE(absl::IsPermissionDenied(nobody));
  REQUIRE(Says(nobody, "user or operator"));
  REQUIRE(Says(nobody, "URI:spiffe://tandem/PROJECT/ROLE"));
  REQUIRE(absl::IsPermissionDenied(
      CheckMayCall(WithRole("operator"), {.project = "other"}, "/tandem.v1.TandemService/Stop")));
  REQUIRE(
      absl::IsPermissionDenied(CheckMayCall(WithRole("operator"), {.project = "demo"}, "/a.B/C")));
  REQUIRE(absl::IsPermissionDenied(CheckMayCall(WithRole("operator"), {.project = "demo"}, "")));
}

TEST_CASE("Health checks and reflection are for every role, and for nobody without one",
          "[roles]") {
  for (const char* method : {"/grpc.health.v1.Health/Check",
                             "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"}) {
    for (const char* role : {"user", "trainer", "rollout", "controller", "agent", "operator"}) {
      REQUIRE(CheckMayCall(WithRole(role), {.project = "demo"}, method).ok());
    }
    REQUIRE_FALSE(CheckMayCall({}, {.project = "demo"}, method).ok());
  }
}

TEST_CASE("What a log calls a method is not the caller's choice", "[roles]") {
  for (const char* method : {"/a.B/C", "", "/tandem.v1.TandemService/Stop1"}) {
    REQUIRE(MethodText(method) == "an unknown method");
  }
  REQUIRE(MethodText("/grpc.health.v1.Health/1") == "a health check");
  REQUIRE(MethodText("/grpc.reflection.v1alpha.ServerReflection/1") == "reflection");
}

TEST_CASE("Weights are replaced and read by the trainer that sends them", "[roles]") {
  const auto may = [](const std::string& role, int publisher, const std::string& method) {
    return CheckMayCall(WithRole(role), {.project = "demo", .publisher = publisher},
                        "/tandem.v1.RolloutService/" + method);
  };
  for (const char* method :
       {"BeginUpdate", "ApplyBucket", "CommitUpdate", "AbortUpdate", "GetDigests", "ReadTensor"}) {
    INFO(method);
    REQUIRE(may("trainer/1", 1, method).ok());
    REQUIRE(may("trainer", 1, method).ok());
    for (const int other : {0, 2, -1}) REQUIRE_FALSE(may("trainer/1", other, method).ok());
    REQUIRE_FALSE(may("rollout/1", 1, method).ok());
  }
  REQUIRE(may("controller", 1, "ReadTensor").ok());
  REQUIRE(may("trainer/0", 1, "GetStatus").ok());
  const absl::Status refused = may("trainer/0", 1, "AbortUpdate");
  REQUIRE(absl::IsPermissionDenied(refused));
  REQUIRE(Says(refused, "needs the role controller or trainer of rank 1 of project demo"));
  REQUIRE(Says(refused, "has spiffe://tandem/demo/trainer/0"));
}

TEST_CASE("A certificate may name several roles, and a rank", "[roles]") {
  const auto host = Who({"https://example.org", "spiffe://other/demo/operator",
                         "spiffe://tandem/demo/trainer/1", "spiffe://tandem/demo/rollout"});
  REQUIRE(host.size() == 2);
  REQUIRE(host[0].Uri() == "spiffe://tandem/demo/trainer/1");
  REQUIRE(CheckIsWorker(host, "demo", "trainer", 1).ok());
  REQUIRE(CheckIsWorker(host, "demo", "rollout", 7).ok());
  const absl::Status refused = CheckIsWorker(host, "demo", "trainer", 0);
  REQUIRE(absl::IsPermissionDenied(refused));
  REQUIRE(Says(refused, "trainer 0"));
  REQUIRE(Says(refused, "spiffe://tandem/demo/trainer/1"));
  REQUIRE_FALSE(CheckIsWorker(WithRole("controller"), "demo", "trainer", 0).ok());
  REQUIRE_FALSE(CheckIsWorker({}, "demo", "trainer", 0).ok());
}

TEST_CASE("A role and rank of another project count for nothing here", "[roles]") {
  const auto two = Who({"spiffe://tandem/demo/rollout", "spiffe://tandem/other/trainer"});
  REQUIRE(CheckMayCall(two, {.project = "demo"}, "/tandem.v1.ClusterService/Register").ok());
  REQUIRE(CheckIsWorker(two, "demo", "rollout", 1).ok());
  REQUIRE(CheckIsWorker(two, "other", "trainer", 1).ok());
  const absl::Status refused = CheckIsWorker(two, "demo", "trainer", 1);
  REQUIRE(absl::IsPermissionDenied(refused));
  REQUIRE(Says(refused, "trainer 1 of project demo"));
  REQUIRE_FALSE(CheckIsWorker(two, "other", "rollout", 1).ok());
  REQUIRE_FALSE(CheckIsWorker(two, "", "trainer", 1).ok());
}

TEST_CASE("An identity that cannot be read is refused, not passed over", "[roles]") {
  for (const char* uri : {"spiffe://tandem/", "spiffe://tandem/demo", "spiffe://tandem/demo/",
                          "spiffe://tandem//user", "spiffe://tandem/demo/root",
                          "spiffe://tandem/demo/trainer/x", "spiffe://tandem/demo/trainer/-1",
                          "spiffe://tandem/demo/trainer/4096", "spiffe://tandem/demo/trainer/1/2",
                          "spiffe://tandem/demo/user/1", "spiffe://tandem/demo/User"}) {
    INFO(uri);
    const absl::Status refused = ParseIdentities({uri}).status();
    REQUIRE(absl::IsInvalidArgument(refused));
    REQUIRE(Says(refused, uri));
  }
}

}  // namespace tandem
