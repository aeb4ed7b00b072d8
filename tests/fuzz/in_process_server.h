// A service behind gRPC in this process, for methods that stream: gRPC alone can make their
// streams.
#pragma once

#include <memory>
#include <stdexcept>

#include <grpc/grpc.h>
#include <grpcpp/grpcpp.h>

namespace tandem::fuzz {

class InProcessServer {
 public:
  // `service` outlives this object.
  explicit InProcessServer(grpc::Service* service) {
    // gRPC's threads stay when the last server goes: the next one needs them again, and to end them
    // takes longer than most inputs.
    static const bool kept = (grpc_init(), true);
    (void)kept;
    grpc::ServerBuilder builder;
    builder.RegisterService(service);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) throw std::runtime_error("gRPC did not start a server in the process");
    channel_ = server_->InProcessChannel({});
  }
  ~InProcessServer() { server_->Shutdown(); }
  InProcessServer(const InProcessServer&) = delete;
  InProcessServer& operator=(const InProcessServer&) = delete;

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

 private:
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace tandem::fuzz
