#include "common/net/security/token_calls.h"

#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/support/client_interceptor.h>

#include "common/base/log.h"
#include "common/net/security/call_roles.h"
#include "common/net/security/refusal_log.h"
#include "common/process/files/run_token.h"

namespace tandem {
namespace {

constexpr char kHeader[] = "authorization";
constexpr char kScheme[] = "Bearer ";

class TokenSender final : public grpc::experimental::Interceptor {
 public:
  explicit TokenSender(const std::string& path) : path_(path) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      const absl::StatusOr<std::string> token = ReadRunToken(path_);
      if (token.ok()) {
        methods->GetSendInitialMetadata()->insert({kHeader, kScheme + *token});
      } else {
        LogDebug("a call goes without the run's token: {}", std::string(token.status().message()));
      }
    }
    methods->Proceed();
  }

 private:
  const std::string& path_;  // of the factory, which the channel owns
};

class TokenSenderFactory final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit TokenSenderFactory(std::string path) : path_(std::move(path)) {}

  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo*) override {
    return new TokenSender(path_);
  }

 private:
  const std::string path_;
};

class TokenCheck final : public grpc::AuthMetadataProcessor {
 public:
  explicit TokenCheck(std::string path) : path_(std::move(path)) {}

  bool IsBlocking() const override { return false; }  // it reads one small file

  grpc::Status Process(const InputMetadata& metadata,
                       grpc::AuthContext* /*context*/,
                       OutputMetadata* consumed,
                       OutputMetadata* /*response*/) override {
    const auto path = metadata.find(":path");
    const std::string_view method = MethodText(
        path == metadata.end() ? std::string_view()
                               : std::string_view(path->second.data(), path->second.size()));
    const auto header = metadata.find(kHeader);
    if (header == metadata.end()) return Refuse(method, "came without the token of the run");
    const std::string given(header->second.data(), header->second.size());
    consumed->insert({kHeader, given});
    const absl::StatusOr<std::string> token = ReadRunToken(path_);
    if (!token.ok()) {
      const std::string why(token.status().message());
      refusals_.Tell(why, why);
      return Refuse(method,
                    "cannot be checked, because this process cannot read the token of the run");
    }
    if (!IsRunToken(kScheme + *token, given)) return Refuse(method, "came with another token");
    return grpc::Status::OK;
  }

 private:
  // Callers without a token cannot be told apart: the log has a line for each method.
  grpc::Status Refuse(std::string_view method, const std::string& what) {
    const std::string told = fmt::format("{} {}", method, what);
    refusals_.Tell(told, told);
    return {grpc::StatusCode::UNAUTHENTICATED,
            fmt::format("the call {}. The token is in {}, which only the run's user can read, "
                        "and changes at every start of the controller. Pass --run-dir to "
                        "tandemctl, or --token-file {} to tandemctl or a worker; other programs "
                        "send the header \"{}: {}TOKEN\"",
                        what, path_, path_, kHeader, kScheme)};
  }

  const std::string path_;
  RefusalLog refusals_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface> MakeTokenSender(
    std::string path) {
  return std::make_unique<TokenSenderFactory>(std::move(path));
}

std::shared_ptr<grpc::AuthMetadataProcessor> MakeTokenCheck(std::string path) {
  return std::make_shared<TokenCheck>(std::move(path));
}

}  // namespace tandem
