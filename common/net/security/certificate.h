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

// InvalidArgument: `pem` has no certificate, or the first one is not valid at `now`; with its
// dates.
absl::Status CheckCertificate(const std::string& pem, absl::Time now);

// InvalidArgument: `pem` has no certificate, or none of them is valid at `now`.
absl::Status CheckAuthorities(const std::string& pem, absl::Time now);

// InvalidArgument: `key` is no PEM private key that can be read without a passphrase, or not that
// of the first certificate in `certificate`.
absl::Status CheckKey(const std::string& key, const std::string& certificate);

}  // namespace tandem
