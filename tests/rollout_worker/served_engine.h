// A rollout behind its real service.
#pragma once

#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>

#include "common/net/channel.h"
#include "common/net/server.h"
#include "common/net/worker_codec.h"
#include "rollout_worker/rollout_service.h"
#include "tandem/v1/rollout.grpc.pb.h"
#include "tests/rollout_worker/engine_rig.h"
#include "tests/support/patience.h"

namespace tandem::testing {

// A served engine with weights, and a stub that talks to it.
struct Served {
  const TinyWeights weights{{}, DType::kBFloat16};
  std::unique_ptr<Engine> engine;
  bool shut_down = false;
  std::unique_ptr<RolloutService> service = RolloutService::Create([this] { shut_down = true; });
  std::unique_ptr<RpcServer> server;
  std::unique_ptr<v1::RolloutService::Stub> stub;

  explicit Served(const RigOptions& rig = {}) {
    EngineOptions options = MakeEngineTestOptions(weights, rig);
    options.load_weights = true;
    engine = Engine::Create(options).value();
    const std::string address = "unix:" + (weights.dir.path() / "rollout.sock").string();
    server = RpcServer::Start(address, {service->service()}, {}).value();
    stub = v1::RolloutService::NewStub(MakeChannel(server->address()).value());
  }
  ~Served() {
    engine->Shutdown();
    server->Shutdown(absl::Seconds(2));
  }
  void SetReady() {
    v1::WorkerId worker;
    worker.set_role(v1::ROLE_ROLLOUT);
    worker.set_rank(3);
    worker.set_incarnation(7);
    service->SetReady(engine.get(), worker);
  }
  static std::unique_ptr<grpc::ClientContext> Context() {
    auto context = std::make_unique<grpc::ClientContext>();
    SetDeadline(*context, kPatience);
    return context;
  }
};

// To incarnation 7.
inline v1::GenerateRequest ProtoOf(const GenerationRequest& request) {
  v1::GenerateRequest proto;
  proto.set_incarnation(7);
  proto.set_request_id(request.request_id);
  proto.set_version(request.version);
  proto.set_group(request.group);
  proto.set_stream_tokens(request.stream_tokens);
  for (const int32_t token : request.prompt) proto.add_prompt(token);
  for (const uint64_t id : request.sample_ids) proto.add_sample_ids(id);
  *proto.mutable_params() = ToProto(request.params);
  for (const Continuation& from : request.continued) *proto.add_continued() = ToProto(from);
  return proto;
}

}  // namespace tandem::testing
