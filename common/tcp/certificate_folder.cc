#include "common/tcp/certificate_folder.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/status.h"
#include "common/process/files/private_files.h"
#include "common/tcp/certificate.h"
#include "common/tcp/certificate_maker.h"

namespace tandem {
namespace {

constexpr char kAuthorityName[] = "ca";
constexpr size_t kMostKeyBytes = 64 << 10;

CertificateFiles FilesNamed(const std::string& dir, const std::string& name) {
  const std::filesystem::path folder(dir);
  return {.cert = folder / (name + ".pem"),
          .key = folder / (name + ".key"),
          .ca = folder / (std::string(kAuthorityName) + ".pem")};
}

std::string FileNameOf(const std::string& role, int rank) {
  return rank < 0 ? role : fmt::format("{}-{}", role, rank);
}

absl::Status CheckDays(int days) {
  if (days >= 1 && days <= kMostCertificateDays) return absl::OkStatus();
  return InvalidArgument("--days is {}: give 1 to {}", days, kMostCertificateDays);
}

// In whole seconds, as a certificate has them, and from a little ago, as the clocks of other hosts
// may be behind.
CertificateDates DatesOf(absl::Time now, int days) {
  const absl::Time second = absl::FromUnixSeconds(absl::ToUnixSeconds(now));
  return {.begin = second - kClockSlack, .end = second + absl::Hours(24) * days};
}

// The key first: a certificate without it would look complete. AlreadyExists, with `remedy`: one of
// the two is there, perhaps since a moment ago; none is written then.
absl::Status WritePair(const CertificateFiles& files,
                       const CertificatePem& pem,
                       const std::string& remedy) {
  absl::Status written = WriteNewPrivateFile(files.key, pem.key);
  if (written.ok()) {
    written = WriteNewPrivateFile(files.cert, pem.cert);
    std::error_code unknown;
    if (!written.ok()) std::filesystem::remove(files.key, unknown);
  }
  if (!absl::IsAlreadyExists(written)) return written;
  return MakeStatus(absl::StatusCode::kAlreadyExists, "{}{}", std::string(written.message()),
                    remedy);
}

// Of whole days the one that has begun counts: an authority of 365 days has as many for whoever
// asks for them in the first.
int64_t DaysLeft(absl::Time end, absl::Time now) {
  return absl::Ceil(end - now, absl::Hours(24)) / absl::Hours(24);
}

bool IsServed(const std::string& role) {
  return role == "controller" ||
         std::find(WorkerRoles().begin(), WorkerRoles().end(), role) != WorkerRoles().end();
}

absl::Status CheckRoles(const IssueOptions& options) {
  if (options.roles.empty()) return InvalidArgument("no role is given");
  for (const std::string& role : options.roles) {
    if (std::find(AllRoles().begin(), AllRoles().end(), role) == AllRoles().end()) {
      return InvalidArgument("there is no role \"{}\": give one of {}", role,
                             fmt::join(AllRoles(), ", "));
    }
    const bool is_worker = role != "controller" && IsServed(role);
    if (options.rank >= 0 && !is_worker) {
      return InvalidArgument("a {} has no rank: --rank is for {}", role,
                             fmt::join(WorkerRoles(), " and "));
    }
    if (IsServed(role) && options.hosts.empty()) {
      return InvalidArgument(
          "others call a {}, and look for its name or address in its certificate: give --host",
          role);
    }
  }
  if (options.rank < -1 || options.rank > kMaxRank) {
    return InvalidArgument("--rank is {}: give 0 to {}", options.rank, kMaxRank);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ChooseName(const IssueOptions& options) {
  if (options.name == kAuthorityName) {
    return InvalidArgument("--name {} is that of the authority: give another", options.name);
  }
  if (!options.name.empty()) return options.name;
  if (options.roles.size() == 1) return FileNameOf(options.roles.front(), options.rank);
  return InvalidArgument("give --name for the files of a certificate with the roles {}",
                         fmt::join(options.roles, ", "));
}

struct FoundAuthority {
  CertificatePem pem;
  std::string project;
  absl::Time end;
};

absl::StatusOr<FoundAuthority> ReadAuthority(const std::string& dir, absl::Time now) {
  const CertificateFiles files = FilesNamed(dir, kAuthorityName);
  FoundAuthority found;
  std::ifstream certificate(files.cert, std::ios::binary);
  std::stringstream text;
  text << certificate.rdbuf();
  if (!certificate) {
    return MakeStatus(absl::StatusCode::kNotFound,
                      "cannot read {}: make an authority with tandemctl certs init {}", files.cert,
                      dir);
  }
  found.pem.cert = text.str();
  TANDEM_ASSIGN_OR_RETURN(found.pem.key, ReadPrivateFile(files.key, kMostKeyBytes));
  TANDEM_RETURN_IF_ERROR(Annotate(CheckCertificate(found.pem.cert, now), files.cert));
  TANDEM_RETURN_IF_ERROR(Annotate(CheckKey(found.pem.key, found.pem.cert),
                                  fmt::format("{}, with {}", files.key, files.cert)));
  auto project = AuthorityProject(found.pem.cert);
  if (!project.ok()) return Annotate(project.status(), files.cert);
  found.project = *std::move(project);
  TANDEM_ASSIGN_OR_RETURN(found.end, CertificateEnd(found.pem.cert));
  return found;
}

}  // namespace

CertificateFiles CertificateFilesOf(const std::string& dir, const std::string& role, int rank) {
  return FilesNamed(dir, FileNameOf(role, rank));
}

absl::Status MakeAuthorityFolder(const AuthorityOptions& options, absl::Time now) {
  TANDEM_RETURN_IF_ERROR(CheckDays(options.days));
  const CertificateFiles files = FilesNamed(options.dir, kAuthorityName);
  TANDEM_ASSIGN_OR_RETURN(const CertificatePem pem,
                          MakeAuthority(options.project, DatesOf(now, options.days)));
  // Who can write there could replace the authority.
  TANDEM_RETURN_IF_ERROR(MakeSocketFolder(options.dir));
  return WritePair(files, pem,
                   ", and what it signed would not be believed with another authority: give "
                   "another folder, or remove all certificates of this one");
}

absl::StatusOr<IssuedCertificate> IssueCertificate(const IssueOptions& options, absl::Time now) {
  TANDEM_RETURN_IF_ERROR(CheckDays(options.days));
  TANDEM_RETURN_IF_ERROR(CheckRoles(options));
  TANDEM_ASSIGN_OR_RETURN(const std::string name, ChooseName(options));
  TANDEM_ASSIGN_OR_RETURN(const FoundAuthority authority, ReadAuthority(options.dir, now));
  IssuedCertificate issued{.files = FilesNamed(options.dir, name)};
  if (const int64_t days = DaysLeft(authority.end, now); options.days > days) {
    return InvalidArgument(
        "the authority {} expires in {} days, before the certificate would: give fewer --days, or "
        "make an authority in another folder",
        issued.files.ca, days);
  }
  CertificateDates dates = DatesOf(now, options.days);
  issued.end = dates.end = std::min(dates.end, authority.end);
  CertificateRequest request{.name = name, .hosts = options.hosts, .dates = dates};
  for (const std::string& role : options.roles) {
    issued.identities.push_back({authority.project, role, options.rank});
    request.uris.push_back(issued.identities.back().Uri());
  }
  TANDEM_ASSIGN_OR_RETURN(const CertificatePem pem, MakeCertificate(authority.pem, request));
  TANDEM_RETURN_IF_ERROR(WritePair(
      issued.files, pem,
      fmt::format(": remove {} and {}, or write to another --name and rename both files over the "
                  "old ones, which running processes then read",
                  issued.files.cert, issued.files.key)));
  return issued;
}

}  // namespace tandem
