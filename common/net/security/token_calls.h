// The run's token in gRPC calls: what a client sends, and what a server asks for.
#pragma once

#include <memory>
#include <string>

namespace grpc {
class AuthMetadataProcessor;
namespace experimental {
class ClientInterceptorFactoryInterface;
}  // namespace experimental
}  // namespace grpc

namespace tandem {

// Adds the token to every call of a channel. `path` is read for each call, because a controller
// that is restarted makes a new token. Without a readable file the calls go without a token, and
// their server says what is missing.
std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface> MakeTokenSender(
    std::string path);

// Refuses every call, health checks and reflection too, without the token in `path`, which is read
// for each call. Unauthenticated: none or another, with the file and what to do.
std::shared_ptr<grpc::AuthMetadataProcessor> MakeTokenCheck(std::string path);

}  // namespace tandem
