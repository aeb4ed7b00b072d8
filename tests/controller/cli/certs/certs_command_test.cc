#include "controller/cli/certs/certs_command.h"

#include <sstream>
#include <string>

#include <CLI/CLI.hpp>
#include <catch2/catch.hpp>

#include "common/net/security/tls_credentials.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

// `line` as `tandemctl certs issue` reads it.
IssueOptions ParsedIssue(const std::string& line) {
  CLI::App app("issue");
  IssueOptions options;
  AddCertsIssueOptions(app, options);
  app.parse(line);
  return options;
}

}  // namespace

TEST_CASE("tandemctl certs makes what a server and its callers take") {
  const testing::TempDir dir;
  const std::string folder = dir.path() / "certs";
  CLI::App app("init");
  AuthorityOptions authority;
  AddCertsInitOptions(app, authority);
  app.parse(folder + " --project demo");
  std::ostringstream out;
  REQUIRE(CertsInitCommand(authority, out).ok());
  REQUIRE(testing::Has(out.str(), folder + "/ca.pem: authority of project demo, for 365 days"));
  REQUIRE(testing::Has(out.str(), "tandemctl certs issue " + folder));

  out.str("");
  const IssueOptions trainer =
      ParsedIssue(folder + " --role trainer --rank 3 --host 10.0.0.7 --host node7 --days 7");
  REQUIRE(CertsIssueCommand(trainer, out).ok());
  INFO(out.str());
  REQUIRE(testing::Has(out.str(), folder + "/trainer-3.pem, " + folder + "/trainer-3.key: "));
  REQUIRE(testing::Has(out.str(), "10.0.0.7, node7, spiffe://tandem/demo/trainer/3, until 20"));

  const IssueOptions host =
      ParsedIssue(folder + " --role controller,trainer,rollout --host 127.0.0.1 --name host");
  REQUIRE(host.roles.size() == 3);
  REQUIRE(CertsIssueCommand(host, out).ok());
  const std::string base = folder + "/host";
  const RpcSecurity security{.cert = base + ".pem", .key = base + ".key", .ca = folder + "/ca.pem"};
  REQUIRE(CheckTlsFiles(security).ok());
  REQUIRE(ServedProject(security).value() == "demo");
  REQUIRE(absl::IsAlreadyExists(CertsIssueCommand(host, out)));
}

TEST_CASE("the command line of tandemctl certs issue refuses what is no rank and no number") {
  REQUIRE_THROWS(ParsedIssue("certs"));
  REQUIRE_THROWS(ParsedIssue("certs --role trainer --rank 4096"));
  REQUIRE_THROWS(ParsedIssue("certs --role trainer --days 0"));
  REQUIRE(ParsedIssue("certs --role trainer").rank == -1);
  // The folder may stand last.
  REQUIRE(ParsedIssue("--role trainer --host a certs").dir == "certs");
}

}  // namespace tandem
