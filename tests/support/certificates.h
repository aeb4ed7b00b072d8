// Certificates for tests of mutual TLS, made with the openssl program.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include "common/net/security/rpc_security.h"

namespace tandem::testing {

inline bool HasOpenSsl() { return std::system("openssl version >/dev/null 2>&1") == 0; }

inline void OpenSsl(const std::string& arguments) {
  if (std::system(("openssl " + arguments + " 2>/dev/null").c_str()) != 0) {
    throw std::runtime_error("openssl " + arguments);
  }
}

// An authority with its files in `folder`, named `name`.
class Authority {
 public:
  Authority(const std::filesystem::path& folder, const std::string& name)
      : prefix_((folder / name).string()) {
    OpenSsl(fmt::format("req -x509 {} -keyout {}-ca.key -out {} -subj /CN={} -days 2", kKey,
                        prefix_, ca(), name));
  }

  std::string ca() const { return prefix_ + "-ca.pem"; }

  // A certificate for `names`, as subjectAltName has them: "IP:127.0.0.1,URI:spiffe://...". It has
  // expired if `days` is negative.
  RpcSecurity Issue(const std::string& name, const std::string& names, int days = 2) const {
    const std::string base = prefix_ + "-" + name;
    RpcSecurity files{.cert = base + ".pem", .key = base + ".key", .ca = ca()};
    OpenSsl(fmt::format("req {} -keyout {} -out {}.csr -subj /CN={}", kKey, files.key, base, name));
    std::ofstream(base + ".ext") << "subjectAltName=" << names << "\n";
    OpenSsl(
        fmt::format("x509 -req -in {0}.csr -CA {1} -CAkey {2}-ca.key -CAcreateserial "
                    "-extfile {0}.ext -days {4} -out {3}",
                    base, ca(), prefix_, files.cert, days));
    return files;
  }

 private:
  static constexpr char kKey[] = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";

  std::string prefix_;
};

// "IP:127.0.0.1" and the identity of `role` ("user", or "trainer/1") in `project`.
inline std::string NamesOf(const std::string& role, const std::string& project = "demo") {
  return fmt::format("IP:127.0.0.1,URI:spiffe://tandem/{}/{}", project, role);
}

}  // namespace tandem::testing
