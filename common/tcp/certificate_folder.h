// A folder of certificates for one project: its authority, and a certificate with its key for each
// process, all of them private files.
//
//   DIR/ca.pem, DIR/ca.key              the authority
//   DIR/ROLE.pem, DIR/ROLE.key          of a role
//   DIR/ROLE-RANK.pem, DIR/ROLE-RANK.key  of one worker
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/tcp/identity.h"

namespace tandem {

// As cluster.tls and the flags --tls-* name them.
struct CertificateFiles {
  std::string cert, key, ca;
};

inline constexpr int kMostCertificateDays = 3650;

struct AuthorityOptions {
  std::string dir;
  std::string project = "tandem";
  int days = 365;
};

// Makes `dir` and the authority in it. In a folder that exists others may read, and lose the right
// to write, unless they only change what is their own there, as in /tmp. AlreadyExists: there is an
// authority. InvalidArgument: the project or the days. PermissionDenied: others can write in the
// folder, and this user cannot change that. Otherwise by IoErrorCode.
absl::Status MakeAuthorityFolder(const AuthorityOptions& options, absl::Time now);

struct IssueOptions {
  std::string dir;
  std::vector<std::string> roles;  // at least one
  int rank = -1;                   // of workers; -1: any
  std::vector<std::string> hosts;  // names and addresses by which others reach the process
  std::string name;                // of the files; empty: ROLE or ROLE-RANK
  int days = 30;
};

struct IssuedCertificate {
  CertificateFiles files;
  std::vector<CallerIdentity> identities;
  absl::Time end;
};

// A certificate of the authority in `options.dir`. Its last day may be shorter, where the authority
// expires on it. AlreadyExists: one of that name is there, of whoever wrote it; nothing is written
// over. NotFound: there is no authority. InvalidArgument: an option, with what it may be; a process
// that others call has no host; the authority expires on an earlier day. Otherwise by IoErrorCode.
absl::StatusOr<IssuedCertificate> IssueCertificate(const IssueOptions& options, absl::Time now);

// Of the layout above; whether they are there is not looked at.
CertificateFiles CertificateFilesOf(const std::string& dir, const std::string& role, int rank = -1);

}  // namespace tandem
