#include "controller/cli/certs/certs_command.h"

#include <string>
#include <vector>

#include <absl/time/clock.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/status.h"

namespace tandem {

void AddCertsInitOptions(CLI::App& init, AuthorityOptions& options) {
  init.add_option("DIR", options.dir, "folder for ca.pem and ca.key; made where it is missing")
      ->required();
  init.add_option("--project", options.project,
                  "name that all certificates of the folder have; others are refused")
      ->capture_default_str();
  init.add_option("--days", options.days, "how long the authority counts")
      ->check(CLI::Range(1, kMostCertificateDays))
      ->capture_default_str();
}

void AddCertsIssueOptions(CLI::App& issue, IssueOptions& options) {
  issue.add_option("DIR", options.dir, "folder of tandemctl certs init")->required();
  issue
      .add_option("--role", options.roles,
                  fmt::format("one of {}; several for a process that acts in several, with commas",
                              fmt::join(AllRoles(), ", ")))
      ->required()
      ->delimiter(',')
      ->allow_extra_args(false);
  issue
      .add_option("--rank", options.rank,
                  "the certificate is this trainer's or rollout's alone; without: of any rank")
      ->check(CLI::Range(0, kMaxRank));
  issue
      .add_option(
          "--host", options.hosts,
          "name or address by which others reach the process, or '*.DOMAIN' for all names one "
          "label below a domain; may be repeated. For controller, trainer and rollout")
      ->allow_extra_args(false);
  issue.add_option("--name", options.name, "of the two files; without: ROLE or ROLE-RANK");
  issue.add_option("--days", options.days, "how long the certificate counts")
      ->check(CLI::Range(1, kMostCertificateDays))
      ->capture_default_str();
}

absl::Status CertsInitCommand(const AuthorityOptions& options, std::ostream& out) {
  TANDEM_RETURN_IF_ERROR(MakeAuthorityFolder(options, absl::Now()));
  const CertificateFiles files = CertificateFilesOf(options.dir, "controller");
  out << fmt::format(
      "{}: authority of project {}, for {} days. Certificates: tandemctl certs issue {} --role "
      "ROLE\n",
      files.ca, options.project, options.days, options.dir);
  return absl::OkStatus();
}

absl::Status CertsIssueCommand(const IssueOptions& options, std::ostream& out) {
  TANDEM_ASSIGN_OR_RETURN(const IssuedCertificate issued, IssueCertificate(options, absl::Now()));
  std::vector<std::string> names = options.hosts;
  for (const CallerIdentity& identity : issued.identities) names.push_back(identity.Uri());
  out << fmt::format("{}, {}: {}, until {}\n", issued.files.cert, issued.files.key,
                     fmt::join(names, ", "),
                     absl::FormatTime("%Y-%m-%d", issued.end, absl::UTCTimeZone()));
  return absl::OkStatus();
}

}  // namespace tandem
