#include "deploy/launcher/slurm/controller_place.h"

#include <filesystem>

#include <catch2/catch.hpp>

#include "common/process/local_socket.h"
#include "common/tcp/certificate_folder.h"
#include "common/tcp/tcp_address.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_process.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

TEST_CASE("the controller's address is that from which the other node is reached, a free port") {
  const auto address = ControllerAddressFor("127.0.0.1", "", 17);
  REQUIRE(address.ok());
  const auto parts = ParseTcpAddress(*address);
  REQUIRE(parts.ok());
  REQUIRE(parts->host == "127.0.0.1");
  REQUIRE(parts->port >= 20'000);
  // As long as somebody has the port it is not given again.
  const auto resolved = ResolveTcpAddress(*address);
  REQUIRE(resolved.ok());
  const UniqueFd taken(socket(resolved->front().get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(bind(taken.get(), resolved->front().get(), resolved->front().bytes) == 0);
  REQUIRE(listen(taken.get(), 1) == 0);
  const auto other = ControllerAddressFor("127.0.0.1", "lo", 17);
  REQUIRE(other.ok());
  REQUIRE(*other != *address);
}

TEST_CASE("a node whose name nobody knows, and an interface that is not there, are refused") {
  const auto unknown = ControllerAddressFor("no-such-node.invalid", "", 0);
  REQUIRE(testing::Has(testing::Message(unknown.status()), "no-such-node.invalid"));
  REQUIRE(testing::Has(testing::Message(unknown.status()), "set cluster.listen"));
  REQUIRE_FALSE(ControllerAddressFor("127.0.0.1", "no-such-if0", 0).ok());
}

TEST_CASE("each launch makes certificates of its own for all roles") {
  const testing::TempDir dir;
  const std::string folder = dir.path() / "certs";
  const absl::Time now = absl::Now();
  std::string last;
  for (const std::vector<std::string>& nodes : {std::vector<std::string>{"n1", "n2"}, {"n3"}}) {
    const absl::Status made = MakeJobCertificates(folder, "10.0.0.7:20001", nodes, now);
    INFO(made);
    REQUIRE(made.ok());
    for (const char* role : {"controller", "trainer", "rollout", "agent", "operator"}) {
      const CertificateFiles files = CertificateFilesOf(folder, role);
      for (const std::string& path : {files.cert, files.key, files.ca}) {
        INFO(path);
        REQUIRE(std::filesystem::exists(path));
      }
    }
    const std::string authority = testing::FileText(CertificateFilesOf(folder, "agent").ca);
    REQUIRE(authority != last);
    last = authority;
  }
}

}  // namespace
}  // namespace tandem
