#include "common/net/security/caller.h"

#include <utility>
#include <vector>

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include "common/base/status.h"
#include "common/net/security/refusal_log.h"

namespace tandem {
namespace {

std::vector<std::string> Property(const grpc::AuthContext& context, const char* name) {
  std::vector<std::string> values;
  for (const grpc::string_ref& value : context.FindPropertyValues(name)) {
    values.emplace_back(value.data(), value.size());
  }
  return values;
}

absl::StatusOr<std::vector<CallerIdentity>> CallersOf(const grpc::AuthContext& context) {
  return ParseIdentities(Property(context, GRPC_PEER_URI_PROPERTY_NAME));
}

bool HasTls(const grpc::AuthContext& context) {
  for (const std::string& type : Property(context, GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME)) {
    if (type == GRPC_SSL_TRANSPORT_SECURITY_TYPE || type == GRPC_TLS_TRANSPORT_SECURITY_TYPE) {
      return true;
    }
  }
  return false;
}

// An unreadable identity is none, and the caller is told so.
absl::Status AsDenied(const absl::Status& status) {
  return absl::PermissionDeniedError(status.message());
}

class RoleCheck final : public grpc::AuthMetadataProcessor {
 public:
  RoleCheck(std::string project, std::shared_ptr<const std::atomic<int>> publisher)
      : project_(std::move(project)), publisher_(std::move(publisher)) {}

  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata,
                       grpc::AuthContext* context,
                       OutputMetadata* /*consumed*/,
                       OutputMetadata* /*response*/) override {
    const auto path = metadata.find(":path");
    const std::string method =
        path == metadata.end() ? "" : std::string(path->second.data(), path->second.size());
    const auto callers = CallersOf(*context);
    const absl::Status checked =
        callers.ok() ? CheckMayCall(*callers, Served(), method) : AsDenied(callers.status());
    // The message names the call and the roles of the caller's certificate.
    const std::string message(checked.message());
    if (!checked.ok()) refusals_.Tell(message, message);
    return {static_cast<grpc::StatusCode>(checked.code()), std::string(checked.message())};
  }

 private:
  ServedCallers Served() const {
    return {.project = project_, .publisher = publisher_ == nullptr ? -1 : publisher_->load()};
  }

  const std::string project_;
  const std::shared_ptr<const std::atomic<int>> publisher_;
  RefusalLog refusals_;
};

}  // namespace

std::shared_ptr<grpc::AuthMetadataProcessor> MakeRoleCheck(
    std::string project, std::shared_ptr<const std::atomic<int>> publisher) {
  return std::make_shared<RoleCheck>(std::move(project), std::move(publisher));
}

absl::Status CheckWorkerCall(const grpc::ServerContextBase* context,
                             const std::string& project,
                             std::string_view role,
                             int rank) {
  if (context == nullptr) return absl::OkStatus();
  const std::shared_ptr<const grpc::AuthContext> peer = context->auth_context();
  if (peer == nullptr || !HasTls(*peer)) return absl::OkStatus();
  const auto callers = CallersOf(*peer);
  return callers.ok() ? CheckIsWorker(*callers, project, role, rank) : AsDenied(callers.status());
}

}  // namespace tandem
