// Certificates for tests of mutual TLS.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <absl/strings/str_split.h>
#include <absl/time/clock.h>
#include <absl/time/time.h>
#include <fmt/format.h>

#include "common/net/security/rpc_security.h"
#include "common/tcp/certificate.h"
#include "common/tcp/certificate_maker.h"

namespace tandem::testing {

// An authority with its files in `folder`, named `name`.
class Authority {
 public:
  Authority(const std::filesystem::path& folder, const std::string& name)
      : prefix_((folder / name).string()), pem_(MakeAuthority(name, DatesOf(2)).value()) {
    std::ofstream(ca()) << pem_.cert;
  }

  std::string ca() const { return prefix_ + "-ca.pem"; }

  // A certificate for `names`, as text of a subjectAltName: "IP:127.0.0.1,URI:spiffe://...". It has
  // expired if `days` is negative.
  RpcSecurity Issue(const std::string& name, const std::string& names, int days = 2) const {
    const std::string base = prefix_ + "-" + name;
    const RpcSecurity files{.cert = base + ".pem", .key = base + ".key", .ca = ca()};
    CertificateRequest request{.name = name, .dates = DatesOf(days)};
    const std::vector<std::string> parts = absl::StrSplit(names, ',');
    for (const std::string& one : parts) {
      const size_t colon = one.find(':');
      auto& kind = one.substr(0, colon) == "URI" ? request.uris : request.hosts;
      kind.push_back(one.substr(colon + 1));
    }
    const CertificatePem pem = MakeCertificate(pem_, request).value();
    std::ofstream(files.cert) << pem.cert;
    std::ofstream(files.key) << pem.key;
    return files;
  }

 private:
  static CertificateDates DatesOf(int days) {
    const absl::Time now = absl::Now(), end = now + absl::Hours(24) * days;
    return {.begin = (days < 0 ? end - absl::Hours(24) : now) - kClockSlack, .end = end};
  }

  const std::string prefix_;
  const CertificatePem pem_;
};

// "IP:127.0.0.1" and the identity of `role` ("user", or "trainer/1") in `project`.
inline std::string NamesOf(const std::string& role, const std::string& project = "demo") {
  return fmt::format("IP:127.0.0.1,URI:spiffe://tandem/{}/{}", project, role);
}

}  // namespace tandem::testing
