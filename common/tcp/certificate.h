// What PEM certificates and keys say.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace tandem {

// The URIs among the alternative names of the first certificate in `pem`. InvalidArgument: there is
// no certificate in it.
absl::StatusOr<std::vector<std::string>> CertificateUris(const std::string& pem);

// The clock of the host that issues a certificate may be ahead of this one's by this.
inline constexpr absl::Duration kClockSlack = absl::Minutes(5);

// InvalidArgument: `pem` has no certificate, or the first one has expired at `now` or is not valid
// within kClockSlack from it; with the date.
absl::Status CheckCertificate(const std::string& pem, absl::Time now);

// InvalidArgument: `pem` has no certificate, or none of them is valid at `now`.
absl::Status CheckAuthorities(const std::string& pem, absl::Time now);

// InvalidArgument: `key` is not a PEM private key that can be read without a passphrase, or not
// that of the first certificate in `certificate`.
absl::Status CheckKey(const std::string& key, const std::string& certificate);

}  // namespace tandem
