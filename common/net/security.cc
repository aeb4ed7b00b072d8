#include "common/net/security.h"

#include <fstream>
#include <sstream>
#include <utility>

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include "common/base/local_address.h"
#include "common/base/status_macros.h"

namespace tandem {
namespace {

absl::StatusOr<std::string> ReadPem(const std::string& key, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file || text.str().empty()) {
    return MakeStatus(absl::StatusCode::kNotFound,
                      "cannot read {}, given as cluster.tls.{} or --tls-{}", path, key, key);
  }
  return text.str();
}

struct PemFiles {
  std::string cert, key, ca;
};

absl::StatusOr<PemFiles> ReadAll(const std::string& address, const RpcSecurity& security) {
  if (security.cert.empty() || security.key.empty() || security.ca.empty()) {
    return InvalidArgument(
        "{} needs mutual TLS, and a part of it is missing: set cluster.tls.cert, cluster.tls.key "
        "and cluster.tls.ca (workers and tandemctl: --tls-cert, --tls-key and --tls-ca), or use "
        "127.0.0.1 or a unix: address",
        address);
  }
  PemFiles files;
  TANDEM_ASSIGN_OR_RETURN(files.cert, ReadPem("cert", security.cert));
  TANDEM_ASSIGN_OR_RETURN(files.key, ReadPem("key", security.key));
  TANDEM_ASSIGN_OR_RETURN(files.ca, ReadPem("ca", security.ca));
  return files;
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const std::string& address, const RpcSecurity& security) {
  if (IsLocalAddress(address) && (!security.enabled() || address.rfind("unix:", 0) == 0)) {
    return grpc::InsecureServerCredentials();
  }
  TANDEM_ASSIGN_OR_RETURN(PemFiles files, ReadAll(address, security));
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = files.ca;
  options.pem_key_cert_pairs.push_back({files.key, files.cert});
  return grpc::SslServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    const std::string& address, const RpcSecurity& security) {
  if (IsLocalAddress(address) && (!security.enabled() || address.rfind("unix:", 0) == 0)) {
    return grpc::InsecureChannelCredentials();
  }
  TANDEM_ASSIGN_OR_RETURN(PemFiles files, ReadAll(address, security));
  return grpc::SslCredentials(
      {.pem_root_certs = files.ca, .pem_private_key = files.key, .pem_cert_chain = files.cert});
}

}  // namespace tandem
