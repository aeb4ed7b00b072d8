// The program tandem-rollout, started as a process against a controller that lives in the test.
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <grpcpp/channel.h>

#include "common/base/mutex.h"
#include "common/config/config.h"
#include "common/net/channel.h"
#include "common/net/server.h"
#include "common/text/tokenizer.h"
#include "tandem/v1/controller.grpc.pb.h"
#include "tandem/v1/rollout.grpc.pb.h"
#include "tests/support/build_folder.h"
#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_process.h"
#include "tests/support/tiny_model.h"

namespace tandem {
namespace {

// Registers one worker and tells it to stop when asked to.
class OneWorkerController final : public v1::ClusterService::Service {
 public:
  grpc::Status Register(grpc::ServerContext*,
                        const v1::RegisterRequest* request,
                        v1::RegisterResponse* response) override {
    const MutexLock lock(worker_mutex_);
    *response = reply;
    last_ = *request;
    ready_ = ready_ || !request->numerics_class().empty();
    changed_.NotifyAll();
    return grpc::Status::OK;
  }
  grpc::Status Heartbeat(grpc::ServerContext*,
                         const v1::HeartbeatRequest*,
                         v1::HeartbeatResponse* response) override {
    const MutexLock lock(worker_mutex_);
    response->set_stop(stop_);
    return grpc::Status::OK;
  }
  // What the worker registered with once it was ready.
  v1::RegisterRequest WaitReady() {
    const MutexLock lock(worker_mutex_);
    const auto deadline =
        std::chrono::steady_clock::now() + absl::ToChronoSeconds(testing::kPatience);
    while (!ready_ && changed_.WaitUntil(worker_mutex_, deadline)) {
    }
    REQUIRE(ready_);
    return last_;
  }
  void Stop() {
    const MutexLock lock(worker_mutex_);
    stop_ = true;
  }

  v1::RegisterResponse reply;  // stays as it is once the server runs

 private:
  Mutex worker_mutex_;
  ConditionVariable changed_;
  v1::RegisterRequest last_ ABSL_GUARDED_BY(worker_mutex_);
  bool ready_ ABSL_GUARDED_BY(worker_mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(worker_mutex_) = false;
};

struct Job {
  testing::TempDir dir;
  OneWorkerController controller;
  std::unique_ptr<RpcServer> server;
  std::optional<testing::TestProcess> worker;

  Job() {
    const std::string model = (dir.path() / "model").string();
    REQUIRE(testing::WriteTinyModel(model).ok());
    v1::RegisterResponse& reply = controller.reply;
    *reply.mutable_config() = DefaultConfig();
    reply.set_incarnation(4);
    reply.set_run_dir(dir.path().string());
    reply.set_vocab_limit(testing::TinyTokenizerSize());
    reply.set_tokenizer_digest(Tokenizer::Load(model).value()->digest());
    reply.set_compute_threads(1);
    reply.mutable_config()->mutable_model()->set_path(model);
    reply.mutable_config()->mutable_rollout()->set_max_model_len(256);
    reply.mutable_config()->mutable_rollout()->set_load_format("safetensors");
    reply.mutable_config()->mutable_cluster()->set_heartbeat_seconds(0.05);
  }

  void Start() {
    server =
        RpcServer::Start("unix:" + (dir.path() / "controller.sock").string(), {&controller}, {})
            .value();
    worker.emplace(
        testing::ProcessOptions{.argv = {testing::BuildFolder("bin") + "/tandem-rollout",
                                         "--controller", server->address(), "--rank", "1"}});
  }
};

}  // namespace

TEST_CASE("The worker registers, serves what it loaded, and ends when told to") {
  Job job;
  job.Start();
  const v1::RegisterRequest registered = job.controller.WaitReady();
  REQUIRE(registered.role() == v1::ROLE_ROLLOUT);
  REQUIRE(registered.rank() == 1);
  REQUIRE(registered.device() == "cpu:1");
  const std::string numerics = registered.numerics_class();  // the machine's
  REQUIRE((numerics == "cpu-seq-bf16" || numerics == "cpu-amx32-bf16"));
  REQUIRE(registered.tokenizer_digest() == job.controller.reply.tokenizer_digest());

  const auto stub = v1::RolloutService::NewStub(MakeChannel(registered.address()).value());
  grpc::ClientContext context;
  SetDeadline(context, testing::kPatience);
  v1::GenerateRequest request;
  request.set_incarnation(4);
  request.add_prompt(65);
  request.add_sample_ids(1);
  request.mutable_params()->set_temperature(1);
  request.mutable_params()->set_top_p(1);
  request.mutable_params()->set_top_k(-1);
  request.mutable_params()->set_max_tokens(20);
  request.mutable_params()->add_stop("never this text");
  const auto reader = stub->Generate(&context, request);
  v1::GenerateEvent event;
  REQUIRE(reader->Read(&event));
  REQUIRE(event.finished().tokens_size() > 1);
  REQUIRE(reader->Finish().ok());

  job.controller.Stop();
  REQUIRE(job.worker->Wait() == 0);
}

TEST_CASE("SIGTERM and the Shutdown call end the worker cleanly") {
  for (const bool by_signal : {true, false}) {
    Job job;
    job.Start();
    const v1::RegisterRequest registered = job.controller.WaitReady();
    if (by_signal) {
      job.worker->Signal(SIGTERM);
    } else {
      const auto stub = v1::RolloutService::NewStub(MakeChannel(registered.address()).value());
      grpc::ClientContext context;
      v1::RolloutShutdownResponse response;
      REQUIRE(stub->Shutdown(&context, {}, &response).ok());
    }
    REQUIRE(job.worker->Wait() == 0);
  }
}

TEST_CASE("What cannot work is refused with exit code 64") {
  Job job;
  SECTION("another tokenizer than the controller's") {
    job.controller.reply.set_tokenizer_digest("0123");
  }
  SECTION("a pool that cannot hold one sequence") {
    job.controller.reply.mutable_config()->mutable_rollout()->set_gpu_memory_utilization(1e-7);
  }
  SECTION("sequences longer than the model's positions") {
    job.controller.reply.mutable_config()->mutable_rollout()->set_max_model_len(5000);
  }
  SECTION("a truncated weight file") {
    const auto file = job.dir.path() / "model" / "model.safetensors";
    std::filesystem::resize_file(file, std::filesystem::file_size(file) - 10);
  }
  SECTION("no model") { std::filesystem::remove_all(job.dir.path() / "model"); }
  job.Start();
  REQUIRE(job.worker->Wait() == 64);
}

}  // namespace tandem
