// Roles over real connections, with certificates made here, and their replacement.
#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <absl/time/clock.h>
#include <catch2/catch.hpp>
#include <grpcpp/channel.h>

#include "common/net/channel.h"
#include "common/net/grpc_status.h"
#include "common/net/security/caller.h"
#include "common/net/security/tls_credentials.h"
#include "common/net/server.h"
#include "common/tcp/certificate.h"
#include "tandem/v1/controller.grpc.pb.h"
#include "tandem/v1/rollout.grpc.pb.h"
#include "tests/fakes/fake_clock.h"
#include "tests/support/certificates.h"
#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Authority;
using testing::NamesOf;
using testing::Says;

struct ObligingApi final : v1::TandemService::Service {
  grpc::Status GetStatus(grpc::ServerContext*,
                         const v1::GetStatusRequest*,
                         v1::GetStatusResponse*) override {
    return grpc::Status::OK;
  }
  grpc::Status Stop(grpc::ServerContext*, const v1::StopRequest*, v1::StopResponse*) override {
    return grpc::Status::OK;
  }
};

struct CheckingCluster final : v1::ClusterService::Service {
  std::string project;  // set before the server starts

  grpc::Status Register(grpc::ServerContext* context,
                        const v1::RegisterRequest* request,
                        v1::RegisterResponse*) override {
    return ToGrpcStatus(CheckWorkerCall(context, project,
                                        request->role() == v1::ROLE_TRAINER ? "trainer" : "rollout",
                                        request->rank()));
  }
};

// A call of a method with an empty request.
template <typename Request, typename Response, typename Method>
auto CallOf(Method method) {
  return [method](v1::RolloutService::Stub& stub, grpc::ClientContext* context) {
    Response response;
    return (stub.*method)(context, Request(), &response);
  };
}

struct TlsRolesFixture {
  testing::TempDir dir;
  Authority ours{dir.path(), "ours"};
  ObligingApi api;
  CheckingCluster cluster;
  v1::RolloutService::Service rollout;
  std::unique_ptr<RpcServer> server;

  void Serve(const RpcSecurity& security) {
    cluster.project = ServedProject(security).value();
    server = RpcServer::Start("127.0.0.1:0", {&api, &cluster, &rollout}, security).value();
  }
  std::shared_ptr<grpc::Channel> Connect(const RpcSecurity& security) const {
    return MakeChannel(server->address(), security).value();
  }
  static absl::Status GetStatus(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    SetDeadline(context, testing::kPatience);
    v1::GetStatusResponse response;
    return FromGrpcStatus(v1::TandemService::NewStub(channel)->GetStatus(&context, {}, &response));
  }
  static absl::Status Stop(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    SetDeadline(context, testing::kPatience);
    v1::StopResponse response;
    return FromGrpcStatus(v1::TandemService::NewStub(channel)->Stop(&context, {}, &response));
  }
  template <typename Made>
  static absl::Status Call(v1::RolloutService::Stub& stub, const Made& call) {
    grpc::ClientContext context;
    SetDeadline(context, testing::kPatience);
    return FromGrpcStatus(call(stub, &context));
  }
  static absl::Status Register(const std::shared_ptr<grpc::Channel>& channel,
                               v1::Role role,
                               int rank) {
    grpc::ClientContext context;
    SetDeadline(context, testing::kPatience);
    v1::RegisterRequest request;
    request.set_role(role);
    request.set_rank(rank);
    v1::RegisterResponse response;
    return FromGrpcStatus(
        v1::ClusterService::NewStub(channel)->Register(&context, request, &response));
  }
};

// A key with a passphrase.
constexpr char kLockedKey[] = R"(-----BEGIN ENCRYPTED PRIVATE KEY-----
MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAjWY3g+C9kF7gICCAAw
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEAQIEEDEIfIGjMS3dSfcP9eR1Hf4EgZAu
q9B2/ASouAgLxA+SgoIYcoIpyxnk4VjCOCrjmEM0wP1qMfnnOY4I85ZLzeDeXMCH
sEsPpyaAtJA4m2RkiBwLAKtL7CFu6DM9WpjM+lCsqBymIwfbYx/cD16fMGtPMnan
Ec/KhKG3U773iHA7jeSxfA84vkY2L2Ucar2/mxksckp+uCT8K3xCH1HVkL49H7k=
-----END ENCRYPTED PRIVATE KEY-----
)";

// As a program that rotates certificates does it: each file at once, one after the other.
void ReplaceBy(const RpcSecurity& fresh, const RpcSecurity& used) {
  for (const auto& [from, to] : {std::pair{fresh.cert, used.cert}, std::pair{fresh.key, used.key},
                                 std::pair{fresh.ca, used.ca}}) {
    std::filesystem::copy_file(from, to + ".new");
    std::filesystem::rename(to + ".new", to);
  }
}

// Copies of `files` that a test may replace.
RpcSecurity CopiesOf(const RpcSecurity& files, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  RpcSecurity used{.cert = folder / "cert.pem", .key = folder / "key.pem", .ca = folder / "ca.pem"};
  ReplaceBy(files, used);
  return used;
}

}  // namespace

TEST_CASE("The role in a certificate decides which calls are answered", "[tls]") {
  TlsRolesFixture f;
  f.Serve(f.ours.Issue("controller", NamesOf("controller")));
  const auto user = f.Connect(f.ours.Issue("user", NamesOf("user")));
  const absl::Status read = f.GetStatus(user);
  INFO(read.ToString());
  REQUIRE(read.ok());
  const absl::Status stop = f.Stop(user);
  REQUIRE(absl::IsPermissionDenied(stop));
  for (const char* part : {"/tandem.v1.TandemService/Stop", "role operator", "tandem/demo/user"}) {
    REQUIRE(Says(stop, part));
  }
  const auto driver = f.Connect(f.ours.Issue("operator", NamesOf("operator")));
  REQUIRE(f.GetStatus(driver).ok());
  REQUIRE(f.Stop(driver).ok());
  REQUIRE(absl::IsPermissionDenied(f.Register(driver, v1::ROLE_TRAINER, 0)));
}

TEST_CASE("A certificate without a role, or of another project, may do nothing", "[tls]") {
  TlsRolesFixture f;
  f.Serve(f.ours.Issue("controller", NamesOf("controller")));
  for (const std::string& names : {std::string("IP:127.0.0.1"), NamesOf("operator", "other"),
                                   std::string("IP:127.0.0.1,URI:spiffe://tandem/demo/chief")}) {
    const absl::Status refused = f.GetStatus(f.Connect(f.ours.Issue("somebody", names)));
    INFO(refused.ToString());
    REQUIRE(absl::IsPermissionDenied(refused));
  }
}

TEST_CASE("A worker calls for its own role and rank alone", "[tls]") {
  TlsRolesFixture f;
  f.Serve(f.ours.Issue("controller", NamesOf("controller")));
  const auto any = f.Connect(f.ours.Issue("trainer", NamesOf("trainer")));
  REQUIRE(f.Register(any, v1::ROLE_TRAINER, 3).ok());
  REQUIRE(absl::IsPermissionDenied(f.Register(any, v1::ROLE_ROLLOUT, 3)));
  REQUIRE(absl::IsPermissionDenied(f.GetStatus(any)));
  const auto one = f.Connect(f.ours.Issue("trainer1", NamesOf("trainer/1")));
  REQUIRE(f.Register(one, v1::ROLE_TRAINER, 1).ok());
  const absl::Status other = f.Register(one, v1::ROLE_TRAINER, 0);
  REQUIRE(absl::IsPermissionDenied(other));
  REQUIRE(Says(other, "trainer 0"));
  const auto host =
      f.Connect(f.ours.Issue("host", NamesOf("trainer") + ",URI:spiffe://tandem/demo/rollout"));
  REQUIRE(f.Register(host, v1::ROLE_TRAINER, 0).ok());
  REQUIRE(f.Register(host, v1::ROLE_ROLLOUT, 0).ok());
  const auto mixed =
      f.Connect(f.ours.Issue("mixed", NamesOf("rollout") + ",URI:spiffe://tandem/other/trainer"));
  REQUIRE(f.Register(mixed, v1::ROLE_ROLLOUT, 0).ok());
  REQUIRE(absl::IsPermissionDenied(f.Register(mixed, v1::ROLE_TRAINER, 0)));
}

TEST_CASE("A trainer that does not send a rollout its weights is refused them", "[tls]") {
  TlsRolesFixture f;
  // More rollouts than trainers: this one is sent weights by a trainer of another rank.
  RpcSecurity own = f.ours.Issue("rollout3", NamesOf("rollout/3"));
  own.publisher = std::make_shared<std::atomic<int>>(-1);
  f.Serve(own);
  const auto partner = f.Connect(f.ours.Issue("trainer1", NamesOf("trainer/1")));
  const auto stranger = f.Connect(f.ours.Issue("trainer0", NamesOf("trainer/0")));
  const auto controller = f.Connect(f.ours.Issue("controller", NamesOf("controller")));
  using Stub = v1::RolloutService::Stub;
  const auto require_own = [&](const char* method, auto call) {
    const absl::Status refused = f.Call(*v1::RolloutService::NewStub(stranger), call);
    INFO(method << ": " << refused);
    REQUIRE(absl::IsPermissionDenied(refused));
    REQUIRE(Says(refused, std::string("/tandem.v1.RolloutService/") + method));
    REQUIRE(Says(refused, "trainer of rank 1 of project demo"));
    REQUIRE(Says(refused, "has spiffe://tandem/demo/trainer/0"));
    // This service has no answer, so the call has come through.
    REQUIRE(absl::IsUnimplemented(f.Call(*v1::RolloutService::NewStub(partner), call)));
  };
  const auto begin = CallOf<v1::BeginUpdateRequest, v1::BeginUpdateResponse>(&Stub::BeginUpdate);
  // Before the rollout knows who sends it weights, nobody with a rank may.
  const absl::Status early = f.Call(*v1::RolloutService::NewStub(partner), begin);
  REQUIRE(absl::IsPermissionDenied(early));
  REQUIRE(Says(early, "trainer without a rank of project demo"));
  *own.publisher = 1;
  require_own("BeginUpdate", begin);
  require_own("ApplyBucket",
              CallOf<v1::ApplyBucketRequest, v1::ApplyBucketResponse>(&Stub::ApplyBucket));
  require_own("CommitUpdate",
              CallOf<v1::CommitUpdateRequest, v1::CommitUpdateResponse>(&Stub::CommitUpdate));
  require_own("AbortUpdate",
              CallOf<v1::AbortUpdateRequest, v1::AbortUpdateResponse>(&Stub::AbortUpdate));
  require_own("GetDigests",
              CallOf<v1::GetDigestsRequest, v1::GetDigestsResponse>(&Stub::GetDigests));
  const auto read = CallOf<v1::ReadTensorRequest, v1::ReadTensorResponse>(&Stub::ReadTensor);
  require_own("ReadTensor", read);
  REQUIRE(absl::IsUnimplemented(f.Call(*v1::RolloutService::NewStub(controller), read)));
  REQUIRE(absl::IsPermissionDenied(f.Call(*v1::RolloutService::NewStub(controller), begin)));
}

TEST_CASE("A server's own certificate must name its project", "[tls]") {
  TlsRolesFixture f;
  const RpcSecurity nameless = f.ours.Issue("nameless", "IP:127.0.0.1");
  const absl::Status refused = RpcServer::Start("127.0.0.1:0", {&f.api}, nameless).status();
  REQUIRE(absl::IsInvalidArgument(refused));
  REQUIRE(Says(refused, nameless.cert));
  REQUIRE(Says(refused, "URI:spiffe://tandem/PROJECT/ROLE"));
  const RpcSecurity both =
      f.ours.Issue("both", NamesOf("controller", "a") + ",URI:spiffe://tandem/b/controller");
  REQUIRE(Says(RpcServer::Start("127.0.0.1:0", {&f.api}, both).status(), "a and b"));
  REQUIRE(absl::IsInvalidArgument(CertificateUris("no certificate").status()));
}

TEST_CASE("Files that are none of TLS are refused at the start, with the reason", "[tls]") {
  TlsRolesFixture f;
  const RpcSecurity good = f.ours.Issue("controller", NamesOf("controller"));
  const RpcSecurity other = f.ours.Issue("other", NamesOf("controller"));
  const std::string text = f.dir.path() / "text.pem";
  std::ofstream(text) << "no PEM\n";
  const std::string locked = f.dir.path() / "locked.key";
  std::ofstream(locked) << kLockedKey;
  const auto refused = [&](const RpcSecurity& files, const std::string& file,
                           const std::string& why) {
    testing::FakeClock clock(absl::Now());  // they might only be in replacement
    for (const absl::Status& status : {MakeTlsServerCredentials(files, clock).status(),
                                       MakeTlsChannelCredentials(files, clock).status()}) {
      INFO(status.ToString());
      REQUIRE(absl::IsInvalidArgument(status));
      REQUIRE(Says(status, file));
      REQUIRE(Says(status, why));
    }
  };
  refused({.cert = text, .key = good.key, .ca = good.ca}, text, "no PEM certificate");
  refused({.cert = good.cert, .key = text, .ca = good.ca}, text, "no PEM private key");
  refused({.cert = good.cert, .key = locked, .ca = good.ca}, locked, "passphrase");
  refused({.cert = good.cert, .key = good.key, .ca = text}, text, "no PEM certificate");
  refused({.cert = good.cert, .key = good.cert, .ca = good.ca}, good.cert, "no PEM private key");
  refused({.cert = good.cert, .key = other.key, .ca = good.ca}, other.key,
          "not the key of the certificate");
  REQUIRE(MakeChannel("127.0.0.1:1", good).ok());
}

TEST_CASE("A process that starts while its files are replaced waits for the key", "[tls]") {
  TlsRolesFixture f;
  const RpcSecurity files =
      CopiesOf(f.ours.Issue("controller", NamesOf("controller")), f.dir.path() / "files");
  const RpcSecurity fresh = f.ours.Issue("fresh", NamesOf("controller"));
  std::filesystem::copy_file(fresh.cert, files.cert,
                             std::filesystem::copy_options::overwrite_existing);
  testing::FakeClock clock(absl::Now());
  clock.OnSleep([&] {
    std::filesystem::copy_file(fresh.key, files.key,
                               std::filesystem::copy_options::overwrite_existing);
  });
  const absl::Status started = MakeTlsServerCredentials(files, clock).status();
  INFO(started.ToString());
  REQUIRE(started.ok());
}

TEST_CASE("A certificate counts between its two dates", "[tls]") {
  const testing::TempDir dir;
  const RpcSecurity files = Authority(dir.path(), "ours").Issue("user", NamesOf("user"));  // 2 days
  std::stringstream text;
  text << std::ifstream(files.cert).rdbuf();
  const std::string pem = text.str();
  const absl::Time now = absl::Now();
  REQUIRE(CheckCertificate(pem, now).ok());
  REQUIRE(CheckAuthorities(pem, now).ok());
  for (const auto& check : {CheckCertificate, CheckAuthorities}) {
    REQUIRE(Says(check(pem, now + absl::Hours(49)), "has expired on"));
    REQUIRE(Says(check(pem, now - absl::Hours(1)), "is not valid before"));
    REQUIRE(check(pem, now - absl::Minutes(4)).ok());  // the issuer's clock is ahead
  }
  // While authorities are replaced one of them may have expired.
  REQUIRE(CheckAuthorities(pem + pem, now).ok());
}

TEST_CASE("Files that are replaced are used by new connections, and old ones go on", "[tls]") {
  TlsRolesFixture f;
  const Authority next(f.dir.path(), "next");
  const RpcSecurity served =
      CopiesOf(f.ours.Issue("controller", NamesOf("controller")), f.dir.path() / "served");
  const RpcSecurity of_user =
      CopiesOf(f.ours.Issue("user", NamesOf("user")), f.dir.path() / "user");
  const RpcSecurity old_user = f.ours.Issue("old", NamesOf("user"));
  const RpcSecurity new_user = next.Issue("new", NamesOf("user"));
  f.Serve(served);
  const auto open = f.Connect(of_user);
  REQUIRE(f.GetStatus(open).ok());
  REQUIRE(absl::IsUnavailable(f.GetStatus(f.Connect(new_user))));  // of an unknown authority

  ReplaceBy(next.Issue("controller", NamesOf("controller")), served);
  testing::WaitUntil("the server to use its new files",
                     [&] { return f.GetStatus(f.Connect(new_user)).ok(); });
  REQUIRE(absl::IsUnavailable(f.GetStatus(f.Connect(old_user))));
  REQUIRE(f.GetStatus(open).ok());

  ReplaceBy(new_user, of_user);
  testing::WaitUntil("the client to use its new files",
                     [&] { return f.GetStatus(f.Connect(of_user)).ok(); });
}

}  // namespace tandem
