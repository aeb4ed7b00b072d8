// Makes X.509 certificates for mutual TLS: an authority, and what it signs. Keys are of the curve
// P-256, signatures ECDSA with SHA-256.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace tandem {

struct CertificatePem {
  std::string cert;
  std::string key;  // without passphrase
};

// In whole seconds; both ends count.
struct CertificateDates {
  absl::Time begin, end;
};

// An authority of its own. `project` stands in its subject as the organization, where
// AuthorityProject finds it. InvalidArgument: `project` is no text of 1 to 64 letters, digits,
// dots, hyphens and underscores.
absl::StatusOr<CertificatePem> MakeAuthority(const std::string& project, CertificateDates dates);

// The project of an authority, whoever made it. InvalidArgument: `cert` is none, or names no
// project, or one that MakeAuthority would not take.
absl::StatusOr<std::string> AuthorityProject(const std::string& cert);

// The date on which the first certificate in `cert` expires. InvalidArgument: there is none.
absl::StatusOr<absl::Time> CertificateEnd(const std::string& cert);

struct CertificateRequest {
  std::string name;               // the common name, a text as a project's
  std::vector<std::string> uris;  // alternative names (common/tcp/identity.h)
  // Names or addresses, without port, by which others reach it; *.DOMAIN is every name one label
  // below a domain of two labels or more.
  std::vector<std::string> hosts;
  CertificateDates dates;
};

// For both ends of connections. Does not look whether the dates are within the authority's.
// InvalidArgument: `authority` is not a certificate and its key, the name, or one of the hosts.
absl::StatusOr<CertificatePem> MakeCertificate(const CertificatePem& authority,
                                               const CertificateRequest& request);

}  // namespace tandem
