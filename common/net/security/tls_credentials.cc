#include "common/net/security/tls_credentials.h"

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <tuple>
#include <vector>

#include <fmt/ranges.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/net/security/call_roles.h"
#include "common/net/security/caller.h"
#include "common/tcp/certificate.h"

namespace tandem {
namespace {

namespace tls = grpc::experimental;

// An error about the file that `key` of cluster.tls names.
absl::Status OfFile(const std::string& key, const std::string& path, const absl::Status& status) {
  if (status.ok()) return status;
  return MakeStatus(status.code(),
                    "cluster.tls.{} or --tls-{}, {}: {}; docs/guides/security.md says what it must "
                    "hold and how it is made",
                    key, key, path, std::string(status.message()));
}

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

absl::Status CheckFiles(const RpcSecurity& security, absl::Time now) {
  TANDEM_ASSIGN_OR_RETURN(const std::string cert, ReadPem("cert", security.cert));
  TANDEM_ASSIGN_OR_RETURN(const std::string key, ReadPem("key", security.key));
  TANDEM_ASSIGN_OR_RETURN(const std::string ca, ReadPem("ca", security.ca));
  TANDEM_RETURN_IF_ERROR(OfFile("cert", security.cert, CheckCertificate(cert, now)));
  TANDEM_RETURN_IF_ERROR(
      OfFile("key", fmt::format("{}, with {}", security.key, security.cert), CheckKey(key, cert)));
  return OfFile("ca", security.ca, CheckAuthorities(ca, now));
}

// Finds at the start what would otherwise only make connections fail.
absl::Status AwaitUsableFiles(const RpcSecurity& security, Clock& clock) {
  const Instant deadline = clock.Now() + kTlsReplacement;
  while (true) {
    const absl::Status checked = CheckFiles(security, clock.WallNow());
    // A replacement puts a file in another's place: one that is not there is a wrong path.
    if (checked.ok() || absl::IsNotFound(checked) || clock.Now() >= deadline) return checked;
    clock.Sleep(absl::Milliseconds(200));
  }
}

// One watcher for all users of the same files: it has a thread that looks at them.
using WatchedFiles = std::tuple<std::string, std::string, std::string>;
Mutex watchers_mutex;
std::map<WatchedFiles, std::weak_ptr<tls::FileWatcherCertificateProvider>> watchers
    ABSL_GUARDED_BY(watchers_mutex);

absl::StatusOr<std::shared_ptr<tls::FileWatcherCertificateProvider>> WatchFiles(
    const RpcSecurity& security, Clock& clock) {
  const MutexLock lock(watchers_mutex);
  auto& known = watchers[{security.key, security.cert, security.ca}];
  auto watcher = known.lock();
  if (watcher == nullptr) {
    TANDEM_RETURN_IF_ERROR(AwaitUsableFiles(security, clock));
    watcher = std::make_shared<tls::FileWatcherCertificateProvider>(
        security.key, security.cert, security.ca,
        static_cast<unsigned>(absl::ToInt64Seconds(kTlsRefresh)));
    known = watcher;
  }
  return watcher;
}

}  // namespace

absl::Status CheckTlsFiles(const RpcSecurity& security, Clock& clock) {
  if (!security.enabled()) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(AwaitUsableFiles(security, clock));
  return ServedProject(security).status();
}

absl::StatusOr<std::string> ServedProject(const RpcSecurity& security) {
  if (security.cert.empty()) return "";
  TANDEM_ASSIGN_OR_RETURN(const std::string pem, ReadPem("cert", security.cert));
  const auto uris = CertificateUris(pem);
  if (!uris.ok()) return OfFile("cert", security.cert, uris.status());
  const auto identities = ParseIdentities(*uris);
  if (!identities.ok()) return OfFile("cert", security.cert, identities.status());
  std::set<std::string> projects;
  for (const CallerIdentity& identity : *identities) projects.insert(identity.project);
  if (projects.size() == 1) return *projects.begin();
  return InvalidArgument(
      "cluster.tls.cert, {}, names {}: a server's certificate needs a subjectAltName "
      "URI:spiffe://tandem/PROJECT/ROLE, and all of one project (docs/guides/security.md)",
      security.cert,
      projects.empty() ? std::string("no role")
                       : fmt::format("the projects {}", fmt::join(projects, " and ")));
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeTlsServerCredentials(
    const RpcSecurity& security, Clock& clock) {
  TANDEM_ASSIGN_OR_RETURN(const auto watcher, WatchFiles(security, clock));
  TANDEM_ASSIGN_OR_RETURN(const std::string project, ServedProject(security));
  tls::TlsServerCredentialsOptions options(watcher);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  std::shared_ptr<grpc::ServerCredentials> credentials = tls::TlsServerCredentials(options);
  credentials->SetAuthMetadataProcessor(MakeRoleCheck(project, security.publisher));
  return credentials;
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeTlsChannelCredentials(
    const RpcSecurity& security, Clock& clock) {
  TANDEM_ASSIGN_OR_RETURN(const auto watcher, WatchFiles(security, clock));
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(watcher);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  return tls::TlsCredentials(options);
}

}  // namespace tandem
