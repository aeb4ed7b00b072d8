// What a PEM certificate says.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace tandem {

// The URIs among the alternative names of the first certificate in `pem`. InvalidArgument: there is
// no certificate in it.
absl::StatusOr<std::vector<std::string>> CertificateUris(const std::string& pem);

}  // namespace tandem
